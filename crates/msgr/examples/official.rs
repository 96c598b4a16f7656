//! Talks to a running cluster with the official daemons: fetches the monitor map over an
//! authenticated session, then opens a session with an OSD, in crc and in secure mode.
//!
//! ```sh
//! cargo run -p spirula-msgr --example official -- KEYRING v2:127.0.0.1:3300/0 [v2:OSD-ADDRESS/NONCE]
//! ```

use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_cephx::{AuthName, Authorizer, ClientHandshake, ClientKeys, ClientSession, Env, Keyring, method};
use spirula_denc::{EntityAddr, EntityName, EntityType, UTime};
use spirula_errno::{EACCES, Errno};
use spirula_msgr::shell::Negotiated;
use spirula_msgr::{AuthStart, ConMode, Config, ConnectAuth, Connection, ModeLists, SessionKeys, connect};
use spirula_proto::{MsgHeader2, MsgType, RawMessage};

fn env() -> Env<'static> {
    Env::system(UTime::now())
}

fn refused(e: spirula_cephx::Error) -> Errno {
    eprintln!("{e}");
    EACCES
}

/// A login at a monitor.
struct Login {
    handshake: Option<ClientHandshake>,
    session: Option<ClientSession>,
}

impl ConnectAuth for Login {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        let payload = self.handshake.as_ref().ok_or(EACCES)?.initial().into();
        Ok(AuthStart {
            method: method::CEPHX,
            payload,
        })
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno> {
        let handshake = self.handshake.as_mut().ok_or(EACCES)?;
        handshake
            .handle_more(&payload, &env())
            .map(Into::into)
            .map_err(refused)
    }

    fn done(&mut self, n: Negotiated) -> Result<SessionKeys, Errno> {
        let handshake = self.handshake.take().ok_or(EACCES)?;
        let ClientKeys {
            session_key,
            connection_secret,
            session,
        } = handshake
            .handle_done(n.global_id, &n.payload, &env())
            .map_err(refused)?;
        self.session = Some(session);
        Ok(SessionKeys {
            session_key: session_key.secret().to_vec().into(),
            connection_secret: connection_secret.to_vec().into(),
        })
    }
}

/// A ticket shown to an OSD.
struct Visit(Option<Authorizer>);

impl ConnectAuth for Visit {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        let payload = self
            .0
            .as_ref()
            .ok_or(EACCES)?
            .initial(&env())
            .map_err(refused)?
            .into();
        Ok(AuthStart {
            method: method::CEPHX,
            payload,
        })
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno> {
        let authorizer = self.0.as_mut().ok_or(EACCES)?;
        authorizer
            .handle_more(&payload, &env())
            .map(Into::into)
            .map_err(refused)
    }

    fn done(&mut self, n: Negotiated) -> Result<SessionKeys, Errno> {
        let authorizer = self.0.take().ok_or(EACCES)?;
        let (session_key, secret) = authorizer.handle_done(&n.payload).map_err(refused)?;
        Ok(SessionKeys {
            session_key: session_key.secret().to_vec().into(),
            connection_secret: secret.to_vec().into(),
        })
    }
}

fn config(mode: ConMode) -> Rc<Config> {
    let name = EntityName::new(EntityType::CLIENT, -1);
    let mut config = Config::new(name, Default::default(), Pool::new(64 << 20));
    config.modes = ModeLists::only(&[mode]).into();
    config.nonce = std::process::id();
    Rc::new(config)
}

async fn until(c: &mut Connection, kind: MsgType) -> Result<RawMessage, spirula_msgr::Error> {
    loop {
        let m = c.recv().await?;
        println!(
            "  {} v{} seq {}: {} + {} + {} bytes",
            m.kind(),
            m.header.version,
            m.header.seq,
            m.front.len(),
            m.middle.len(),
            m.data.len()
        );
        if m.kind() == kind {
            return Ok(m);
        }
    }
}

async fn visit(
    mode: ConMode,
    keyring: &Keyring,
    mon: EntityAddr,
    osd: Option<EntityAddr>,
) -> Result<(), Box<dyn Error>> {
    let name = AuthName::new(EntityType::CLIENT, "admin");
    let key = keyring.key(&name).ok_or("no key for client.admin")?.clone();
    let mut login = Login {
        handshake: Some(ClientHandshake::new(
            name,
            key,
            &[EntityType::MON, EntityType::OSD],
        )),
        session: None,
    };
    let config = config(mode);
    let mut c = connect(mon, EntityType::MON, &config, &mut login).await?;
    println!("{:?}", c.peer());
    c.sender().send(RawMessage {
        header: MsgHeader2 {
            kind: MsgType::MON_GET_MAP,
            version: 1,
            compat_version: 1,
            priority: 127,
            ..Default::default()
        },
        ..Default::default()
    });
    until(&mut c, MsgType::MON_MAP).await?;
    c.sender().keepalive();
    let quiet = until(&mut c, MsgType::SHUTDOWN);
    let _ = tokio::time::timeout(Duration::from_millis(200), quiet).await;
    println!("  keepalive answered: {}", c.last_keepalive_ack().is_some());

    if let (Some(addr), Some(session)) = (osd, &login.session) {
        let authorizer = session.tickets().authorizer(EntityType::OSD, &env())?;
        let mut c = connect(addr, EntityType::OSD, &config, &mut Visit(Some(authorizer))).await?;
        println!("{:?}", c.peer());
        c.sender().keepalive();
        let quiet = until(&mut c, MsgType::SHUTDOWN);
        let _ = tokio::time::timeout(Duration::from_millis(200), quiet).await;
        println!("  keepalive answered: {}", c.last_keepalive_ack().is_some());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, keyring, mon, osd @ ..] = args.as_slice() else {
        return Err("usage: official KEYRING MON-ADDRESS [OSD-ADDRESS]".into());
    };
    let keyring = Keyring::parse(&std::fs::read_to_string(keyring)?)?;
    let mon = mon.parse()?;
    let osd = osd.first().map(|a| a.parse()).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        for mode in [ConMode::CRC, ConMode::SECURE] {
            visit(mode, &keyring, mon, osd).await?;
        }
        Ok(())
    })
}
