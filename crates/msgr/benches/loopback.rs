//! CPU time per operation over a loopback connection, both ends in one thread: 4 KiB requests with
//! small replies (a write as an OSD sees it), 4 KiB replies to small requests (a read), and 4 MiB
//! messages one way.
//!
//! Prints a table; run with `cargo bench -p spirula-msgr`. Kernel time is included: it is most of
//! it.

use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityName, EntityType};
use spirula_errno::Errno;
use spirula_msgr::shell::Negotiated;
use spirula_msgr::{
    AcceptAuth, AcceptReply, Acceptor, AuthStart, ConMode, Config, ConnectAuth, Connection, ModeLists,
    SessionKeys, connect,
};
use spirula_proto::{MsgHeader2, MsgType, RawMessage};
use tokio::net::TcpListener;

/// Lets everyone in, with fixed keys.
struct Open;

fn keys() -> SessionKeys {
    SessionKeys {
        session_key: vec![1; 16].into(),
        connection_secret: vec![2; 64].into(),
    }
}

impl AcceptAuth for Open {
    type Info = ();

    async fn request(&mut self, _: EntityType, _: u32, _: ConMode, _: Bytes) -> AcceptReply {
        AcceptReply::Done {
            global_id: 1,
            payload: Bytes::new(),
            keys: keys(),
        }
    }

    async fn more(&mut self, _: Bytes) -> AcceptReply {
        AcceptReply::More(Bytes::new())
    }

    fn into_info(self) {}
}

impl ConnectAuth for Open {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        Ok(AuthStart {
            method: 2,
            payload: Bytes::new(),
        })
    }

    fn more(&mut self, _: Bytes) -> Result<Bytes, Errno> {
        Err(spirula_errno::EINVAL)
    }

    fn done(&mut self, _: Negotiated) -> Result<SessionKeys, Errno> {
        Ok(keys())
    }
}

struct Case {
    name: &'static str,
    request: usize,
    reply: usize,
    depth: usize,
}

const CASES: [Case; 5] = [
    Case {
        name: "4 KiB write, 1 in flight",
        request: 4096,
        reply: 0,
        depth: 1,
    },
    Case {
        name: "4 KiB write, 16 in flight",
        request: 4096,
        reply: 0,
        depth: 16,
    },
    Case {
        name: "4 KiB read, 16 in flight",
        request: 0,
        reply: 4096,
        depth: 16,
    },
    Case {
        name: "4 MiB write, 4 in flight",
        request: 4 << 20,
        reply: 0,
        depth: 4,
    },
    Case {
        name: "4 MiB read, 4 in flight",
        request: 0,
        reply: 4 << 20,
        depth: 4,
    },
];

/// A message with a front as long as an MOSDOp's.
fn message(data: usize) -> RawMessage {
    RawMessage {
        header: MsgHeader2 {
            kind: MsgType::OSD_OP,
            ..Default::default()
        },
        front: Bytes::from(vec![3; 240]),
        middle: Bytes::new(),
        data: Bytes::from(vec![4; data]).into(),
    }
}

async fn pair(mode: ConMode) -> Result<(Connection, Connection), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = EntityAddr::v2(listener.local_addr()?, 1);
    let mut server = Config::new(
        EntityName::new(EntityType::OSD, 0),
        addr.into(),
        Pool::new(128 << 20),
    );
    let mut client = Config::new(
        EntityName::new(EntityType::CLIENT, -1),
        Default::default(),
        Pool::new(128 << 20),
    );
    for config in [&mut server, &mut client] {
        config.modes = ModeLists::only(&[mode]).into();
    }
    let (acceptor, client) = (Acceptor::new(Rc::new(server)), Rc::new(client));
    let accept = async {
        let (stream, from) = listener.accept().await?;
        acceptor.accept(stream, from, Open).await
    };
    let mut open = Open;
    let (s, c) = tokio::join!(accept, connect(addr, EntityType::OSD, &client, &mut open));
    Ok((s?.0, c?))
}

fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.try_into().unwrap_or(0))
}

async fn run(case: &Case, mode: ConMode) -> Result<(), Box<dyn Error>> {
    let (mut server, mut client) = pair(mode).await?;
    let (reply, request) = (message(case.reply), message(case.request));
    let echo = tokio::task::spawn_local(async move {
        while server.recv().await.is_ok() {
            server.sender().send(reply.clone());
        }
    });
    let (mut sent, mut done) = (0u64, 0u64);
    let (start, start_cpu) = (Instant::now(), cpu());
    while start.elapsed() < Duration::from_secs(2) {
        while sent - done < case.depth as u64 {
            client.sender().send(request.clone());
            sent += 1;
        }
        client.recv().await?;
        done += 1;
        while client.try_recv()?.is_some() {
            done += 1;
        }
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), (cpu() - start_cpu).as_secs_f64());
    let ops = done as f64;
    println!(
        "{:38} {mode:7} {:8.0} op/s  {:8.2} CPU us/op  {:6.2} CPU GB/s",
        case.name,
        ops / wall,
        cpu / ops * 1e6,
        ops * (case.request + case.reply) as f64 / cpu / 1e9
    );
    drop(client);
    echo.await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        for mode in [ConMode::CRC, ConMode::SECURE] {
            for case in &CASES {
                run(case, mode).await?;
            }
        }
        Ok(())
    })
}
