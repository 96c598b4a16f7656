//! Both sides of real connections over loopback sockets.

mod auth;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use auth::{Guest, Porter, keys};
use bytes::Bytes;
use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityName, EntityType};
use spirula_proto::{MsgHeader2, MsgType, RawMessage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::{Acceptor, ConMode, Config, Connection, Error, ModeLists, SessionError, connect};

struct Server {
    acceptor: Rc<Acceptor>,
    listener: TcpListener,
    addr: EntityAddr,
    pool: Pool,
}

async fn server(modes: &[ConMode], change: impl FnOnce(&mut Config)) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = EntityAddr::v2(listener.local_addr().unwrap(), 77);
    let pool = Pool::new(64 << 20);
    let mut config = Config::new(EntityName::new(EntityType::OSD, 3), addr.into(), pool.clone());
    config.modes = ModeLists::only(modes).into();
    change(&mut config);
    let acceptor = Rc::new(Acceptor::new(Rc::new(config)).with_pending_max(4));
    Server {
        acceptor,
        listener,
        addr,
        pool,
    }
}

fn client_config(modes: &[ConMode]) -> Rc<Config> {
    let name = EntityName::new(EntityType::CLIENT, -1);
    let mut config = Config::new(name, Default::default(), Pool::new(64 << 20));
    config.modes = ModeLists::only(modes).into();
    Rc::new(config)
}

impl Server {
    async fn accept(&self) -> Result<(Connection, Vec<Bytes>), Error> {
        let (stream, from) = self.listener.accept().await.unwrap();
        self.acceptor.accept(stream, from, Porter::default()).await
    }

    async fn pair(&self, config: &Rc<Config>) -> (Connection, Connection) {
        let mut guest = Guest::new("spirula");
        let (server, client) = tokio::join!(
            self.accept(),
            connect(self.addr, EntityType::OSD, config, &mut guest)
        );
        (server.unwrap().0, client.unwrap())
    }
}

fn message(tid: u64, front: usize, middle: usize, data: &[usize]) -> RawMessage {
    let fill = |n: usize| Bytes::from((0..n).map(|i| (i as u64 * 31 + tid) as u8).collect::<Vec<_>>());
    RawMessage {
        header: MsgHeader2 {
            tid,
            kind: MsgType(42),
            ..Default::default()
        },
        front: fill(front),
        middle: fill(middle),
        data: data.iter().map(|&n| fill(n)).collect(),
    }
}

fn shapes() -> Vec<RawMessage> {
    let shapes: [(usize, usize, &[usize]); 12] = [
        (0, 0, &[]),
        (1, 0, &[]),
        (200, 0, &[4096]),
        (0, 0, &[5]),
        (0, 9, &[]),
        (300, 20, &[1000, 3000, 96]),
        (5000, 2000, &[40_000]),
        (100_000, 0, &[]),
        (0, 0, &[4 << 20]),
        (17, 70_000, &[1, 1 << 20, 3]),
        (32_755, 0, &[]),
        (32_756, 0, &[]),
    ];
    shapes
        .iter()
        .enumerate()
        .map(|(i, (f, m, d))| message(i as u64 + 1, *f, *m, d))
        .collect()
}

async fn every_shape(mode: ConMode) {
    let server = server(&[ConMode::CRC, ConMode::SECURE], |_| {}).await;
    let (mut osd, mut client) = server.pair(&client_config(&[mode])).await;
    assert_eq!((osd.peer().con_mode, client.peer().con_mode), (mode, mode));
    assert_eq!(osd.peer().name, EntityName::new(EntityType::CLIENT, 4117));
    assert_eq!(client.peer().name, EntityName::new(EntityType::OSD, 3));
    assert_eq!(client.peer().addrs.0, [server.addr]);
    for _ in 0..3 {
        for m in shapes() {
            assert!(client.sender().send(m));
        }
    }
    for _ in 0..3 {
        for want in shapes() {
            let got = osd.recv().await.unwrap();
            let data = got.data.to_bytes();
            assert_eq!(got.header.tid, want.header.tid);
            assert!(got.front == want.front && got.middle == want.middle && got.data == want.data);
            let known = got.data.iter().any(|b| spirula_buf::crc::block_crcs(b).is_some());
            assert_eq!(known, mode == ConMode::CRC && data.len() > 32 << 10);
            if data.len() > 1024 {
                assert_eq!(data.as_ptr() as usize % 4096, 0);
            }
            osd.sender().send(got);
        }
    }
    for _ in 0..3 {
        for want in shapes() {
            let got = client.recv().await.unwrap();
            assert!(got.header.ack_seq > 0);
            assert!(got.front == want.front && got.middle == want.middle && got.data == want.data);
        }
    }
    assert_eq!(client.sender().queued_bytes(), 0);
    client.sender().close();
    assert!(matches!(osd.recv().await, Err(Error::Closed | Error::Io(_))));
    drop((osd, client));
    assert_eq!(server.pool.in_use(), 0);
}

#[tokio::test]
async fn every_shape_of_message_survives_in_crc_mode() {
    LocalSet::new().run_until(every_shape(ConMode::CRC)).await;
}

#[tokio::test]
async fn every_shape_of_message_survives_in_secure_mode() {
    LocalSet::new().run_until(every_shape(ConMode::SECURE)).await;
}

#[tokio::test]
async fn a_refused_method_is_replaced_and_a_wrong_word_refused() {
    LocalSet::new()
        .run_until(async {
            let server = server(&[ConMode::CRC], |_| {}).await;
            let config = client_config(&[ConMode::SECURE, ConMode::CRC]);
            let mut guest = Guest {
                method: 1,
                ..Guest::new("spirula")
            };
            let (s, c) = tokio::join!(
                server.accept(),
                connect(server.addr, EntityType::OSD, &config, &mut guest)
            );
            assert_eq!(s.unwrap().1, ["hello", "spirula"]);
            assert_eq!(c.unwrap().peer().con_mode, ConMode::CRC);

            let mut guest = Guest::new("nautilus");
            let (s, c) = tokio::join!(
                server.accept(),
                connect(server.addr, EntityType::OSD, &config, &mut guest)
            );
            assert!(s.is_err());
            assert!(matches!(
                c,
                Err(Error::Session(SessionError::Denied(spirula_errno::EACCES)))
            ));
        })
        .await;
}

#[tokio::test]
async fn mismatches_end_the_handshake() {
    LocalSet::new()
        .run_until(async {
            let server = server(&[ConMode::CRC], |_| {}).await;
            // No common mode.
            let (config, mut guest) = (client_config(&[ConMode::SECURE]), Guest::new("spirula"));
            let dial = connect(server.addr, EntityType::OSD, &config, &mut guest);
            let (_, c) = tokio::join!(server.accept(), dial);
            assert!(matches!(
                c,
                Err(Error::Session(SessionError::Denied(spirula_errno::EOPNOTSUPP)))
            ));
            // Another session key: someone in between.
            let config = client_config(&[ConMode::CRC]);
            let mut keys = keys();
            keys.session_key[0] ^= 1;
            let mut guest = Guest {
                keys,
                ..Guest::new("spirula")
            };
            let (s, c) = tokio::join!(
                server.accept(),
                connect(server.addr, EntityType::OSD, &config, &mut guest)
            );
            assert!(matches!(s, Err(Error::Session(SessionError::Signature))));
            assert!(c.is_err());
            // Another type than expected.
            let mut guest = Guest::new("spirula");
            let (_, c) = tokio::join!(
                server.accept(),
                connect(server.addr, EntityType::MON, &config, &mut guest)
            );
            assert!(matches!(c, Err(Error::Session(SessionError::PeerType { .. }))));
            // Another nonce: an earlier life of the daemon was dialled.
            let old = EntityAddr {
                nonce: 76,
                ..server.addr
            };
            let (s, c) = tokio::join!(
                server.accept(),
                connect(old, EntityType::OSD, &config, &mut guest)
            );
            assert!(matches!(s, Err(Error::Session(SessionError::WrongAddress))));
            assert!(c.is_err());
        })
        .await;
}

#[tokio::test]
async fn keepalives_are_answered_and_silence_is_noticed() {
    LocalSet::new()
        .run_until(async {
            let server = server(&[ConMode::CRC], |c| c.idle_timeout = Duration::from_millis(150)).await;
            let (mut osd, mut client) = server.pair(&client_config(&[ConMode::CRC])).await;
            assert!(client.last_keepalive_ack().is_none());
            client.sender().keepalive();
            let wait = Duration::from_millis(50);
            let both = async { tokio::join!(osd.recv(), client.recv()) };
            assert!(tokio::time::timeout(wait, both).await.is_err());
            assert!(client.last_keepalive_ack().is_some());
            assert!(matches!(osd.recv().await, Err(Error::Idle)));
        })
        .await;
}

#[tokio::test]
async fn reading_stops_while_the_pool_is_full() {
    LocalSet::new()
        .run_until(async {
            let mut pool = Pool::new(0);
            let server = server(&[ConMode::CRC], |c| {
                c.pool = Pool::new(100_000);
                pool = c.pool.clone();
            })
            .await;
            let (mut osd, client) = server.pair(&client_config(&[ConMode::CRC])).await;
            for tid in 1..=20 {
                client.sender().send(message(tid, 10, 0, &[30_000]));
            }
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(osd.recv().await.unwrap());
            }
            let wait = Duration::from_millis(50);
            assert!(tokio::time::timeout(wait, osd.recv()).await.is_err());
            assert!(pool.in_use() <= pool.limit());
            // A buffer that comes back lets the next message in.
            for tid in 4..=20 {
                held.remove(0);
                let got = tokio::time::timeout(Duration::from_secs(5), osd.recv())
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(got.header.tid, tid);
                held.push(got);
            }
        })
        .await;
}

/// Receives messages until `most` have come on all connections; returns the number of this one's.
async fn receive_among(mut connection: Connection, most: usize, all: Rc<Cell<usize>>) -> usize {
    let mut own = 0;
    while all.get() < most {
        let message = connection.recv().await.unwrap();
        // As a store that is the bound: the room comes back later.
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(message);
        });
        own += 1;
        all.set(all.get() + 1);
    }
    own
}

#[tokio::test]
async fn connections_take_turns_for_room() {
    LocalSet::new()
        .run_until(async {
            let server = server(&[ConMode::CRC], |c| c.pool = Pool::new(9 << 20).party()).await;
            let config = client_config(&[ConMode::CRC]);
            let mut pairs = Vec::new();
            for _ in 0..3 {
                let pair = server.pair(&config).await;
                for tid in 1..=40 {
                    pair.1.sender().send(message(tid, 10, 0, &[4 << 20]));
                }
                pairs.push(pair);
            }
            let all = Rc::default();
            let (osds, _clients): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let receive = |osd| tokio::task::spawn_local(receive_among(osd, 60, Rc::clone(&all)));
            let receivers: Vec<_> = osds.into_iter().map(receive).collect();
            let mut shares = Vec::new();
            for receiver in receivers {
                shares.push(receiver.await.unwrap());
            }
            assert!(shares.iter().all(|n| (16..=25).contains(n)), "{shares:?}");
        })
        .await;
}

/// A client in a thread of its own that stops running amid its first message.
fn stopped_client(addr: EntityAddr) -> (oneshot::Receiver<()>, std::sync::mpsc::Sender<()>) {
    let (stops, stopped) = oneshot::channel();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let config = client_config(&[ConMode::CRC]);
            let mut guest = Guest::new("spirula");
            let client = connect(addr, EntityType::OSD, &config, &mut guest).await.unwrap();
            client.sender().send(message(1, 10, 0, &[40 << 20]));
            // The part that the socket accepts.
            tokio::time::sleep(Duration::from_millis(50)).await;
            stops.send(()).unwrap();
            let _ = wait.recv();
        });
    });
    (stopped, go_on)
}

#[tokio::test]
async fn a_peer_that_stops_amid_a_message_keeps_no_room_from_others() {
    LocalSet::new()
        .run_until(async {
            let server = server(&[ConMode::CRC], |c| c.stall_timeout = Duration::from_millis(100)).await;
            let (stopped, _go_on) = stopped_client(server.addr);
            let (mut stuck, _) = server.accept().await.unwrap();
            stopped.await.unwrap();
            // While nobody wants the room it waits.
            let wait = Duration::from_millis(300);
            assert!(tokio::time::timeout(wait, stuck.recv()).await.is_err());
            let (mut osd, client) = server.pair(&client_config(&[ConMode::CRC])).await;
            client.sender().send(message(2, 10, 0, &[40 << 20]));
            let ends = async move { stuck.recv().await.err() };
            let wait = Duration::from_secs(5);
            let both = tokio::time::timeout(wait, async { tokio::join!(ends, osd.recv()) });
            let (ended, got) = both.await.unwrap();
            assert!(matches!(ended, Some(Error::Stalled)), "{ended:?}");
            assert_eq!(got.unwrap().header.tid, 2);
        })
        .await;
}

#[tokio::test]
async fn honest_clients_get_in_past_a_crowd_of_silent_and_noisy_ones() {
    LocalSet::new()
        .run_until(async {
            let server = Rc::new(server(&[ConMode::CRC], |_| {}).await);
            let (done, mut accepted) = tokio::sync::mpsc::unbounded_channel();
            let accepting = Rc::clone(&server);
            tokio::task::spawn_local(async move {
                loop {
                    let (stream, from) = accepting.listener.accept().await.unwrap();
                    let (acceptor, done) = (Rc::clone(&accepting.acceptor), done.clone());
                    tokio::task::spawn_local(async move {
                        if let Ok((c, _)) = acceptor.accept(stream, from, Porter::default()).await {
                            done.send(c).unwrap();
                        }
                    });
                }
            });
            let mut crowd = Vec::new();
            for i in 0..20u8 {
                let mut s = TcpStream::connect(server.addr.socket.unwrap()).await.unwrap();
                if i % 2 == 1 {
                    s.write_all(&[i; 300]).await.unwrap();
                }
                crowd.push(s);
            }
            let (config, mut guest) = (client_config(&[ConMode::CRC]), Guest::new("spirula"));
            let client = connect(server.addr, EntityType::OSD, &config, &mut guest)
                .await
                .unwrap();
            assert!(accepted.recv().await.is_some());
            assert_eq!(client.peer().global_id, 4117);
            assert!(server.acceptor.pending() <= 4);
            // The noisy ones were hung up on.
            let mut rest = Vec::new();
            let _ = crowd[1].read_to_end(&mut rest).await;
            assert!(rest.len() < 200);
        })
        .await;
}
