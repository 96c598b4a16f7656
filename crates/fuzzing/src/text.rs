//! Capabilities and keyrings.

use std::net::IpAddr;

use spirula_cephx::caps::{
    Access, ApplicationMetadata, Args, ClassCall, MdsCap, MgrCap, MgrRequest, MonCap, MonRequest, OsdCap,
    OsdRequest, validate,
};
use spirula_cephx::{AuthName, Keyring};

const ADDR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// The whole input is one text, which each service parses.
pub(crate) fn caps(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for service in ["mon", "osd", "mds", "mgr", "none"] {
        if let Err(e) = validate(service, &text) {
            assert!(!e.to_string().is_empty());
        }
    }
    let args = Args::from([
        ("addr".to_owned(), "10.0.0.1:0/42".to_owned()),
        ("key".to_owned(), "daemon-private/client.x/1".to_owned()),
    ]);
    let name = AuthName::monitors();
    if let Ok(caps) = MonCap::parse(&text) {
        for (service, command) in [
            ("osd", "osd blocklist"),
            ("config-key", "config-key get"),
            ("mon", ""),
        ] {
            let allowed = caps.is_capable(&MonRequest {
                name: &name,
                service,
                command,
                args: &args,
                access: Access::RW,
                addr: Some(ADDR),
            });
            assert!(allowed || !caps.is_allow_all());
        }
    }
    if let Ok(caps) = MgrCap::parse(&text) {
        let allowed = caps.is_capable(&MgrRequest {
            name: &name,
            service: "osd",
            module: "rbd_support",
            command: "rbd task list",
            args: &args,
            access: Access::R,
            addr: Some(ADDR),
        });
        assert!(allowed || !caps.is_allow_all());
    }
    if let Ok(caps) = MdsCap::parse(&text) {
        for grant in &caps.grants {
            let _ = (grant.applies_at(Some(ADDR)), grant.covers_path("a/b"));
        }
    }
    osd_caps(&text);
}

fn osd_caps(text: &str) {
    let Ok(caps) = OsdCap::parse(text) else {
        return;
    };
    let application = ApplicationMetadata::default();
    let classes = [ClassCall {
        class: "rbd",
        method: "get_id",
        read: true,
        write: false,
        default_allowed: true,
    }];
    for (namespace, object, write) in [(&b""[..], &b"rbd_id.x"[..], false), (b"\xffn", b"", true)] {
        let allowed = caps.is_capable(&OsdRequest {
            pool: "p",
            namespace,
            application: &application,
            object,
            read: !write,
            write,
            classes: &classes,
            addr: Some(ADDR),
        });
        assert!(allowed || !caps.is_allow_all());
    }
}

pub(crate) fn keyring(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(keyring) = Keyring::parse(&text) {
        // Not always readable: like the official tool it escapes quotes but no backslashes.
        let _ = Keyring::parse(&keyring.to_string());
    }
}
