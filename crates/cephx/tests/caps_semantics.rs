//! The permissions that capabilities give, by the rules of Ceph's `src/mon/MonCap.cc`,
//! `src/osd/OSDCap.cc` and `src/mgr/MgrCap.cc`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use spirula_cephx::AuthName;
use spirula_cephx::caps::{
    Access, ApplicationMetadata, Args, ClassCall, MdsCap, MgrCap, MgrRequest, MonCap, MonRequest, OsdCap,
    OsdRequest, validate,
};

fn args(pairs: &[(&str, &str)]) -> Args {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

struct Mon(MonCap, AuthName);

fn mon(caps: &str) -> Mon {
    Mon(MonCap::parse(caps).unwrap(), "client.x".parse().unwrap())
}

impl Mon {
    fn named(self, name: &str) -> Self {
        Self(self.0, name.parse().unwrap())
    }
    fn may(&self, service: &str, access: Access) -> bool {
        self.run(service, "", &[], access, "10.0.0.1")
    }
    fn may_run(&self, service: &str, command: &str, pairs: &[(&str, &str)]) -> bool {
        self.run(service, command, pairs, Access::RW, "10.0.0.1")
    }
    fn run(&self, service: &str, command: &str, pairs: &[(&str, &str)], access: Access, from: &str) -> bool {
        let args = args(pairs);
        let addr = from.parse().ok();
        self.0.is_capable(&MonRequest {
            name: &self.1,
            service,
            command,
            args: &args,
            access,
            addr,
        })
    }
}

#[test]
fn mon_letters_allow_all_services_but_not_the_config_keys() {
    assert!(mon("allow r").may("osd", Access::R) && !mon("allow r").may("osd", Access::W));
    assert!(mon("allow r, allow w").may("osd", Access::RW));
    assert!(mon("allow rwx").may("auth", Access::RWX));
    assert!(!mon("allow rwx").may("config-key", Access::R));
    assert!(mon("allow *").may("config-key", Access::RWX));
    assert!(mon("allow service config-key rw").may("config-key", Access::RW));
    assert!(
        mon("allow service osd rw").may("osd", Access::RW)
            && !mon("allow service osd rw").may("mon", Access::R)
    );
    assert!(mon("allow *").0.is_allow_all() && !mon("allow rwx").0.is_allow_all());
    assert!(!mon("allow * network 10.0.0.0/8").0.is_allow_all());
    assert!(!MonCap::default().is_allow_all() && MonCap::allow_all().is_allow_all());
}

#[test]
fn mon_commands_with_their_arguments() {
    let c = mon(r#"allow command "osd pool create" with pool prefix foo- pg_num=8"#);
    assert!(c.may_run("osd", "osd pool create", &[("pool", "foo-1"), ("pg_num", "8")]));
    assert!(!c.may_run("osd", "osd pool create", &[("pool", "foo-1")]));
    assert!(!c.may_run("osd", "osd pool create", &[("pool", "bar"), ("pg_num", "8")]));
    assert!(!c.may_run("osd", "osd pool delete", &[("pool", "foo-1"), ("pg_num", "8")]));
    let c = mon(r#"allow command x with name regex "a+""#);
    assert!(c.may_run("mon", "x", &[("name", "aaa")]) && !c.may_run("mon", "x", &[("name", "aab")]));
}

#[test]
fn mon_networks() {
    let c = mon("allow r network 10.0.0.0/8");
    assert!(c.run("mon", "", &[], Access::R, "10.9.9.9") && !c.run("mon", "", &[], Access::R, "11.0.0.1"));
    assert!(!mon("allow r network 10.0.0.0").may("mon", Access::R));
    assert!(!c.run("mon", "", &[], Access::R, "nowhere"));
}

#[test]
fn mon_profiles() {
    let osd = || mon("allow profile osd").named("osd.1");
    assert!(osd().may("osd", Access::RWX) && osd().may("mon", Access::R) && !osd().may("mon", Access::W));
    assert!(osd().may("log", Access::W) && !osd().may("auth", Access::R));
    assert!(osd().may_run(
        "config-key",
        "config-key set",
        &[("key", "daemon-private/osd.1/x")]
    ));
    assert!(!osd().may_run(
        "config-key",
        "config-key set",
        &[("key", "daemon-private/osd.11/x")]
    ));
    assert!(osd().may_run(
        "config",
        "config set",
        &[("name", "osd_mclock_max_capacity_iops_ssd")]
    ));
    assert!(!osd().may_run(
        "config",
        "config set",
        &[("name", "osd_mclock_max_capacity_iops_ssd_x")]
    ));

    let rbd = mon("profile rbd");
    assert!(rbd.may("mon", Access::R) && rbd.may("osd", Access::R) && !rbd.may("osd", Access::W));
    let one = [("blocklistop", "add"), ("addr", "10.0.0.1:0/123")];
    assert!(rbd.may_run("osd", "osd blocklist", &one));
    assert!(!rbd.may_run(
        "osd",
        "osd blocklist",
        &[("blocklistop", "add"), ("addr", "10.0.0.1")]
    ));
    assert!(!rbd.may_run(
        "osd",
        "osd blocklist",
        &[("blocklistop", "rm"), ("addr", "10.0.0.1:0/123")]
    ));
    assert!(rbd.may_run(
        "osd",
        "osd blacklist",
        &[("blacklistop", "add"), ("addr", "10.0.0.1:0/123")]
    ));
    assert!(mon("profile rbd-read-only").may("pg", Access::R));

    let boot = mon("profile bootstrap-osd");
    assert!(boot.may_run("osd", "osd new", &[]) && boot.may_run("mon", "mon getmap", &[]));
    assert!(!boot.may_run("osd", "osd rm", &[]) && !boot.may_run("auth", "auth get-or-create", &[]));
    let boot = mon("profile bootstrap-rbd");
    let create = |osd| {
        [
            ("entity", "client.a"),
            ("caps_mon", "profile rbd"),
            ("caps_osd", osd),
        ]
    };
    assert!(boot.may_run(
        "auth",
        "auth get-or-create",
        &create("profile rbd pool=a, profile rbd-read-only pool=b")
    ));
    assert!(!boot.may_run("auth", "auth get-or-create", &create("allow *")));

    assert!(mon("profile role-definer").may("auth", Access::RWX));
    assert!(!mon("profile role-definer").may("osd", Access::R));
    assert!(mon("profile crash").may("mon", Access::R) && !mon("profile crash").may("osd", Access::R));
    assert!(mon("profile simple-rados-client").may("pg", Access::R));
    assert!(mon("profile fs-client").may("mds", Access::R));
    assert!(mon("profile mgr").may("auth", Access::RWX) && !mon("profile mgr").may("osd", Access::X));
    assert!(!mon("profile nonsense").may("mon", Access::R));
}

struct Op<'a> {
    caps: OsdCap,
    pool: &'a str,
    namespace: &'a str,
    object: &'a str,
    application: ApplicationMetadata,
    from: &'a str,
}

fn osd(caps: &str) -> Op<'static> {
    let caps = OsdCap::parse(caps).unwrap();
    Op {
        caps,
        pool: "p",
        namespace: "",
        object: "o",
        application: BTreeMap::new(),
        from: "10.0.0.1",
    }
}

impl<'a> Op<'a> {
    fn on(self, pool: &'a str, namespace: &'a str, object: &'a str) -> Self {
        Self {
            pool,
            namespace,
            object,
            ..self
        }
    }
    fn tagged(mut self, application: &str, key: &str, value: &str) -> Self {
        self.application
            .entry(application.into())
            .or_default()
            .insert(key.into(), value.into());
        self
    }
    fn may(&self, mode: &str) -> bool {
        self.may_call(mode, &[])
    }
    fn may_call(&self, mode: &str, classes: &[ClassCall<'_>]) -> bool {
        self.caps.is_capable(&OsdRequest {
            pool: self.pool,
            namespace: self.namespace.as_bytes(),
            application: &self.application,
            object: self.object.as_bytes(),
            read: mode.contains('r'),
            write: mode.contains('w'),
            classes,
            addr: self.from.parse::<IpAddr>().ok(),
        })
    }
}

fn call<'a>(class: &'a str, method: &'a str, mode: &str) -> ClassCall<'a> {
    ClassCall {
        class,
        method,
        read: mode.contains('r'),
        write: mode.contains('w'),
        default_allowed: true,
    }
}

#[test]
fn osd_letters_must_come_from_one_grant() {
    assert!(osd("allow r").may("r") && !osd("allow r").may("w"));
    assert!(osd("allow rw").may("rw") && !osd("allow r, allow w").may("rw"));
    assert!(osd("allow *").caps.is_allow_all() && !osd("allow rwx").caps.is_allow_all());
    assert!(
        !osd("allow * pool=p").caps.is_allow_all() && !osd("allow * network 10.0.0.0/8").caps.is_allow_all()
    );
    assert!(!OsdCap::default().is_allow_all());
}

#[test]
fn osd_scopes() {
    assert!(osd("allow rw pool=p").may("rw") && !osd("allow rw pool=q").may("r"));
    assert!(osd("allow rw pool p").may("rw") && osd("allow pool p rw").may("rw"));
    assert!(
        osd("allow rw namespace=n").on("any", "n", "o").may("w") && !osd("allow rw namespace=n").may("w")
    );
    assert!(
        osd("allow rw namespace=\"\"").may("w") && !osd("allow rw namespace=\"\"").on("p", "n", "o").may("w")
    );
    let star = || osd("allow rw pool=p namespace=n*");
    assert!(
        star().on("p", "n", "o").may("w")
            && star().on("p", "nx", "o").may("w")
            && !star().on("p", "m", "o").may("w")
    );
    let prefix = || osd("allow r object_prefix rbd_");
    assert!(prefix().on("p", "", "rbd_x").may("r") && !prefix().on("p", "", "x_rbd_").may("r"));
    assert!(osd("allow r network 10.0.0.0/8").may("r") && !osd("allow r network 11.0.0.0/8").may("r"));
}

#[test]
fn osd_tags() {
    let fs = |caps| osd(caps).tagged("cephfs", "data", "a");
    assert!(fs("allow rw tag cephfs data=a").may("rw") && !fs("allow rw tag cephfs data=b").may("r"));
    assert!(fs("allow rw tag cephfs *=*").may("rw") && fs("allow rw tag cephfs data=*").may("rw"));
    assert!(fs("allow rw tag cephfs *=a").may("rw") && !fs("allow rw tag cephfs *=b").may("rw"));
    assert!(!fs("allow rw tag cephfs metadata=*").may("r") && !fs("allow rw tag rbd *=*").may("r"));
    assert!(!osd("allow rw tag cephfs *=*").may("r"));
    assert!(!fs("allow rw namespace=n tag cephfs data=a").may("r"));
}

#[test]
fn osd_classes() {
    let (read, write) = (call("c", "get", "r"), call("c", "set", "w"));
    assert!(osd("allow x").may_call("", &[read, write]) && !osd("allow rw").may_call("", &[read]));
    assert!(osd("allow class-read").may_call("", &[read]) && !osd("allow class-read").may_call("", &[write]));
    assert!(osd("allow class-write").may_call("", &[write]));
    assert!(osd("allow class c").may_call("", &[read, write]) && !osd("allow class d").may_call("", &[read]));
    assert!(
        osd("allow class c get").may_call("", &[read]) && !osd("allow class c get").may_call("", &[write])
    );
    // Different grants may allow different calls of one operation, but not its letters.
    assert!(osd("allow class c get, allow class c set").may_call("", &[read, write]));
    assert!(!osd("allow r, allow class c get").may_call("r", &[read]));
    let rare = ClassCall {
        default_allowed: false,
        ..read
    };
    assert!(!osd("allow x").may_call("", &[rare]) && osd("allow class c").may_call("", &[rare]));
    assert!(osd("allow *").may_call("rw", &[rare]) && osd("allow * pool=p").may_call("rw", &[rare]));
}

#[test]
fn osd_profile_rbd() {
    let rbd = || osd("profile rbd pool=p namespace=n");
    assert!(
        rbd()
            .on("p", "n", "x")
            .may_call("rw", &[call("rbd", "create", "rw")])
    );
    assert!(!rbd().on("q", "n", "x").may("r") && !rbd().on("p", "", "x").may("r"));
    assert!(rbd().on("q", "", "rbd_info").may("r"));
    assert!(
        rbd()
            .on("q", "z", "rbd_children")
            .may_call("", &[call("rbd", "get_children", "r")])
    );
    let list = call("rbd", "metadata_list", "r");
    assert!(
        rbd().on("p", "", "rbd_info").may_call("", &[list])
            && !rbd().on("q", "", "rbd_info").may_call("", &[list])
    );

    let ro = || osd("profile rbd-read-only pool=p");
    assert!(ro().may_call("r", &[call("rbd", "get_size", "r")]) && !ro().may("w"));
    let attach = call("rbd", "child_attach", "w");
    assert!(ro().on("p", "", "rbd_header.1").may_call("", &[attach]) && !ro().may_call("", &[attach]));
    assert!(osd("profile read-only").may("r") && osd("profile read-write pool=p").may("rw"));
    assert!(!osd("profile nonsense").may("r"));
}

fn mgr(caps: &str, module: &str, command: &str, pairs: &[(&str, &str)], access: Access) -> bool {
    let (name, args) = ("client.x".parse().unwrap(), args(pairs));
    let req = MgrRequest {
        name: &name,
        service: "mgr",
        module,
        command,
        args: &args,
        access,
        addr: None,
    };
    MgrCap::parse(caps).unwrap().is_capable(&req)
}

#[test]
fn mgr_grants() {
    assert!(mgr("allow *", "m", "c", &[], Access::RWX) && mgr("allow r", "m", "c", &[], Access::R));
    assert!(
        !mgr("allow r", "m", "c", &[], Access::W) && mgr("allow service mgr rw", "", "c", &[], Access::RW)
    );
    assert!(mgr(
        "allow command c with a=b",
        "m",
        "c",
        &[("a", "b")],
        Access::RWX
    ));
    assert!(!mgr("allow command c with a=b", "m", "c", &[], Access::R));
    assert!(mgr(
        "profile rbd pool=p",
        "rbd_support",
        "",
        &[("pool", "p")],
        Access::RW
    ));
    assert!(!mgr(
        "profile rbd pool=p",
        "rbd_support",
        "",
        &[("pool", "q")],
        Access::R
    ));
    assert!(mgr(
        "profile rbd pool=p",
        "rbd_support",
        "rbd task add",
        &[("pool", "q")],
        Access::R
    ));
    assert!(!mgr("profile rbd-read-only", "rbd_support", "", &[], Access::W));
    assert!(
        mgr("profile crash", "crash", "crash post", &[], Access::RW)
            && !mgr("profile osd", "", "", &[], Access::R)
    );
}

#[test]
fn mds_grants() {
    let cap = MdsCap::parse("allow r, allow rwps path=/a/b uid=5 gids=9,7").unwrap();
    let [all, below] = &cap.grants[..] else {
        panic!("{cap:?}")
    };
    assert!(all.permissions.read && !all.permissions.write && all.covers_path("x"));
    assert!(below.permissions.snapshot && below.permissions.set_vxattr && !below.permissions.full);
    assert!(below.covers_path("a/b") && below.covers_path("a/b/c") && !below.covers_path("a/bc"));
    assert_eq!((below.uid, &below.gids[..]), (Some(5), &[7, 9][..]));
    assert!(
        MdsCap::parse("allow *").unwrap().is_allow_all() && !MdsCap::parse("allow").unwrap().is_allow_all()
    );
    assert!(!MdsCap::parse("allow * fsname=a").unwrap().is_allow_all());
}

proptest! {
    #[test]
    fn no_grammar_panics(service in "mon|osd|mds|mgr", text in "(allow|profile|rw|\\*|all|pool|namespace|tag|class|with|network|path|uid|[a-z0-9=,;\"' \t/.é]){0,12}") {
        if let Err(e) = validate(&service, &text) {
            let _ = e.to_string();
        }
    }
}
