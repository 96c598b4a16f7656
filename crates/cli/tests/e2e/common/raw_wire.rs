//! A session whose bytes the test sends itself, at its own pace.

use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::{EntityAddr, EntityType};
use spirula_msgr::session::{Handshake, Outbound, Step};
use spirula_msgr::shell::Negotiated;
use spirula_msgr::{AuthStart, Config, ConnectAuth};
use spirula_proto::RawMessage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An established session: nothing is read from it.
pub struct RawWire {
    /// Its socket.
    pub stream: TcpStream,
    out: Outbound,
}

/// The bytes that a handshake's encoder wants to send.
fn pending(enc: &mut spirula_msgr::frame::Encoder) -> Vec<u8> {
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    enc.slices(&mut slices, usize::MAX);
    let bytes: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
    enc.wrote(bytes.len());
    bytes
}

impl RawWire {
    /// Connects and logs in over a network on which an answer takes `round_trip`. `None` if the
    /// other side closes the connection or refuses.
    pub async fn connect(
        target: EntityAddr,
        kind: EntityType,
        config: &Rc<Config>,
        login: &mut impl ConnectAuth,
        round_trip: Duration,
    ) -> Option<Self> {
        let mut stream = TcpStream::connect(target.socket?).await.ok()?;
        tokio::time::sleep(round_trip).await;
        let mut hs = Handshake::connector(Rc::clone(config), target, kind, 1);
        loop {
            match hs.poll().ok()? {
                Step::NeedBytes => {
                    let bytes = pending(hs.encoder());
                    stream.write_all(&bytes).await.ok()?;
                    let mut buf = vec![0; 4096];
                    let n = stream.read(&mut buf).await.ok().filter(|n| *n > 0)?;
                    tokio::time::sleep(round_trip).await;
                    let mut at = 0;
                    while at < n {
                        let take = |places: &mut [std::io::IoSliceMut<'_>]| {
                            let some = places[0].len().min(n - at);
                            places[0][..some].copy_from_slice(&buf[at..at + some]);
                            Ok(some)
                        };
                        at += hs.decoder().read_with(take).ok()?;
                    }
                }
                Step::StartAuth => {
                    let AuthStart { method, payload } = login.start().ok()?;
                    hs.start_auth(AuthStart { method, payload }).ok()?;
                }
                Step::AuthReply(payload) => hs.more(login.more(payload).ok()?).ok()?,
                Step::AuthDone {
                    global_id,
                    con_mode,
                    payload,
                } => {
                    let keys = login.done(Negotiated {
                        global_id,
                        con_mode,
                        payload,
                    });
                    hs.keys(&keys.ok()?).ok()?;
                }
                Step::Ready => break,
                _ => return None,
            }
        }
        let (_, _, mut out) = hs.finish().ok()?;
        let rest = pending(out.encoder());
        stream.write_all(&rest).await.ok()?;
        Some(Self { stream, out })
    }

    /// The bytes of a message on the wire.
    pub fn bytes(&mut self, message: RawMessage) -> Vec<u8> {
        self.out.message(message, 0).unwrap();
        pending(self.out.encoder())
    }

    /// Whether the other side has closed the connection.
    pub async fn is_hung_up(&mut self, within: Duration) -> bool {
        let mut buf = [0; 4096];
        let end = async {
            loop {
                match self.stream.read(&mut buf).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(within, end).await.is_ok()
    }
}
