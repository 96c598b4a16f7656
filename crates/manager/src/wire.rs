//! The frames between the monitor and the manager's process, on a pair of sockets.
//!
//! ```text
//! frame   := length:u32 body
//! body    := Start      the first one to the manager
//!          | Request    all others to it
//!          | News       to the monitor
//! ```
//!
//! Numbers are little-endian, values encoded as everywhere (`denc`). Both ends are of the same
//! program, so there are no versions. Neither trusts the other: lengths are bounded, and what can't
//! be decoded ends the manager.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use spirula_cephx::caps::MgrCap;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer, decode_all};
use spirula_msgr::{ConMode, ModeLists};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::question::{Authority, Holder, Question, Reply, errno};
use crate::rights::{Basis, Login, Origin, Place};
use crate::service::{ImagesToName, News, Request, Start, TaskNews};

/// Bytes of a frame's body.
pub(crate) const MAX_FRAME: usize = 8 << 20;
/// Bytes of a text about a task. A task's references are JSON, whose values take more memory than
/// their text.
const MAX_TEXT: usize = 64 << 10;
/// Bytes of a command's arguments, as JSON.
const MAX_ARGS: usize = 1 << 20;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The other end has closed the socket.
    #[error("it has hung up")]
    Gone,
    /// The socket failed.
    #[error(transparent)]
    Io(std::io::Error),
    /// The other end sends a frame that is too large.
    #[error("a message of {0} bytes")]
    TooLarge(usize),
    /// The other end sends a frame that can't be decoded.
    #[error("an unreadable message: {0}")]
    Malformed(#[from] Error),
}

impl From<std::io::Error> for FrameError {
    fn from(e: std::io::Error) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match e.kind() {
            UnexpectedEof | ConnectionReset | BrokenPipe => Self::Gone,
            _ => Self::Io(e),
        }
    }
}

/// Reads the next value. The future must not be dropped within a frame.
pub(crate) async fn receive<T: Decode>(
    from: &mut (impl AsyncRead + Unpin),
) -> std::result::Result<T, FrameError> {
    let len = from.read_u32_le().await?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len > MAX_FRAME {
        return Err(FrameError::TooLarge(len));
    }
    // Room is made as bytes come, not as they are promised.
    let mut body = Vec::new();
    let wanted = u64::try_from(len).unwrap_or(u64::MAX);
    if from.take(wanted).read_to_end(&mut body).await? < len {
        return Err(FrameError::Gone);
    }
    Ok(decode_all(&body)?)
}

/// The frame of a value; `None` if it is too large.
pub(crate) fn frame(value: &impl Encode) -> Option<Vec<u8>> {
    let mut w = Writer::new();
    let len = w.hole_u32();
    let begin = w.len();
    w.put(value);
    let body = w.len() - begin;
    let body = u32::try_from(body).ok().filter(|_| body <= MAX_FRAME)?;
    w.fill_u32(len, body);
    Some(w.into_vec())
}

/// The frame of news. An answer that is too large becomes an error for the asker; other news of
/// that size are dropped.
pub(crate) fn frame_of_news(news: &News) -> Option<Vec<u8>> {
    frame(news).or_else(|| {
        tracing::warn!("news of more than {MAX_FRAME} bytes are not told");
        let News::Reply(id, _) = news else { return None };
        let status = "the answer is too large: ask for less";
        frame(&News::Reply(*id, Reply::error(errno::E2BIG, status)))
    })
}

/// Writes a frame.
pub(crate) async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    frame: &[u8],
) -> std::result::Result<(), FrameError> {
    Ok(to.write_all(frame).await?)
}

/// A text about a task.
fn get_text(r: &mut Reader<'_>) -> Result<String> {
    let text = r.string()?;
    Some(text)
        .filter(|t| t.len() <= MAX_TEXT)
        .ok_or(Error::Invalid("length of a text"))
}

fn put_json(w: &mut Writer, map: &Map<String, Value>) {
    // Maps with texts for keys always become text.
    w.string(&serde_json::to_string(map).unwrap_or_default());
}

fn get_json(r: &mut Reader<'_>, max: usize) -> Result<Map<String, Value>> {
    let text = r.blob()?;
    let fits = Some(text).filter(|t| t.len() <= max);
    let fits = fits.ok_or(Error::Invalid("length of JSON"))?;
    serde_json::from_slice(fits).map_err(|_| Error::Invalid("JSON"))
}

fn put_duration(w: &mut Writer, d: Duration) {
    w.u64(u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
}

fn put_modes(w: &mut Writer, modes: &ModeLists) {
    let ModeLists {
        cluster,
        service,
        client,
        mon_cluster,
        mon_service,
        mon_client,
    } = modes;
    for list in [cluster, service, client, mon_cluster, mon_service, mon_client] {
        w.count(list.len());
        list.iter().for_each(|m| w.u32(m.0));
    }
}

fn get_modes(r: &mut Reader<'_>) -> Result<ModeLists> {
    let mut list = || -> Result<Vec<ConMode>> { Ok(r.get::<Vec<u32>>()?.into_iter().map(ConMode).collect()) };
    Ok(ModeLists {
        cluster: list()?,
        service: list()?,
        client: list()?,
        mon_cluster: list()?,
        mon_service: list()?,
        mon_client: list()?,
    })
}

impl Encode for Start {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.name);
        w.put(&self.key);
        w.put(&self.monitors);
        w.put(&self.addresses);
        put_modes(w, &self.modes);
        w.put(&self.osdmap_epoch);
        put_duration(w, self.heartbeat);
    }
}

impl Decode for Start {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            name: r.get()?,
            key: r.get()?,
            monitors: r.get()?,
            addresses: r.get()?,
            modes: get_modes(r)?,
            osdmap_epoch: r.get()?,
            heartbeat: Duration::from_millis(r.u64()?),
        })
    }
}

impl Encode for Place {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.pool);
        w.string(&self.namespace);
    }
}

impl Decode for Place {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            pool: r.get()?,
            namespace: r.get()?,
        })
    }
}

impl Encode for Origin {
    fn encode(&self, w: &mut Writer) {
        w.string(&self.key);
        w.string(&self.text);
    }
}

impl Decode for Origin {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            key: r.get()?,
            text: r.get()?,
        })
    }
}

impl Encode for Basis {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Asked(question) => {
                w.u8(0);
                w.u64(*question);
            }
            Self::Stored { origin, at } => {
                w.u8(1);
                w.put(origin);
                w.put(at);
            }
        }
    }
}

impl Decode for Basis {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => Ok(Self::Asked(r.u64()?)),
            1 => Ok(Self::Stored {
                origin: r.get()?,
                at: r.get()?,
            }),
            _ => Err(Error::Invalid("basis of rights")),
        }
    }
}

impl Encode for Login {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.name);
        w.put(&self.key);
    }
}

impl Decode for Login {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            name: r.get()?,
            key: r.get()?,
        })
    }
}

impl Encode for ImagesToName {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.pool);
        w.string(&self.namespace);
        w.put(&self.ids);
    }
}

impl Decode for ImagesToName {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            pool: r.get()?,
            namespace: r.get()?,
            ids: r.get()?,
        })
    }
}

impl Encode for Authority {
    fn encode(&self, w: &mut Writer) {
        let Self::Limited(holder) = self else {
            return w.u8(0);
        };
        w.u8(1);
        w.put(&holder.name);
        w.string(holder.cap.text());
        w.put(&holder.ip.map(|ip| ip.to_string()));
        w.put(&holder.access);
    }
}

impl Decode for Authority {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => return Ok(Self::All),
            1 => {}
            _ => return Err(Error::Invalid("authority")),
        }
        let name = r.get()?;
        let cap = MgrCap::parse(&r.string()?).map_err(|_| Error::Invalid("capabilities"))?;
        let ip: Option<String> = r.get()?;
        let ip: Option<IpAddr> = match ip {
            None => None,
            Some(ip) => Some(ip.parse().map_err(|_| Error::Invalid("address"))?),
        };
        Ok(Self::Limited(Box::new(Holder {
            name,
            cap,
            ip,
            access: r.get()?,
        })))
    }
}

impl Encode for Question {
    fn encode(&self, w: &mut Writer) {
        w.string(&self.prefix);
        put_json(w, &self.args);
        w.put(&self.authority);
        w.string(&self.default_pool);
    }
}

impl Decode for Question {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            prefix: r.get()?,
            args: get_json(r, MAX_ARGS)?,
            authority: r.get()?,
            default_pool: r.get()?,
        })
    }
}

impl Question {
    /// Whether its arguments are small enough for a frame.
    pub(crate) fn fits(&self) -> bool {
        serde_json::to_string(&self.args).is_ok_and(|t| t.len() <= MAX_ARGS)
    }
}

impl Encode for Reply {
    fn encode(&self, w: &mut Writer) {
        w.i32(self.code);
        w.string(&self.status);
        w.string(&self.output);
    }
}

impl Decode for Reply {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            code: r.i32()?,
            status: r.get()?,
            output: r.get()?,
        })
    }
}

impl Encode for Request {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Ask(id, question) => {
                w.u8(0);
                w.u64(*id);
                w.put(&**question);
            }
            Self::NameImages(wanted) => {
                w.u8(1);
                w.put(wanted);
            }
            Self::Login { client, login } => {
                w.u8(2);
                w.u64(*client);
                w.put(login);
            }
            Self::Noted { question, done } => {
                w.u8(3);
                w.u64(*question);
                w.bool(*done);
            }
        }
    }
}

impl Decode for Request {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => Ok(Self::Ask(r.u64()?, Box::new(r.get()?))),
            1 => Ok(Self::NameImages(r.get()?)),
            2 => Ok(Self::Login {
                client: r.u64()?,
                login: r.get()?,
            }),
            3 => Ok(Self::Noted {
                question: r.u64()?,
                done: r.bool()?,
            }),
            _ => Err(Error::Invalid("request")),
        }
    }
}

impl Encode for TaskNews {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Progress {
                id,
                message,
                share,
                refs,
            } => {
                w.u8(0);
                w.string(id);
                w.string(message);
                w.f64(*share);
                put_json(w, refs);
            }
            Self::Complete { id } => {
                w.u8(1);
                w.string(id);
            }
            Self::Failed { id, why } => {
                w.u8(2);
                w.string(id);
                w.string(why);
            }
        }
    }
}

impl Decode for TaskNews {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            0 => {
                let (id, message, share) = (get_text(r)?, get_text(r)?, r.f64()?);
                let is_share = (0.0..=1.0).contains(&share);
                if !is_share {
                    return Err(Error::Invalid("share of a task"));
                }
                Ok(Self::Progress {
                    id,
                    message,
                    share,
                    refs: get_json(r, MAX_TEXT)?,
                })
            }
            1 => Ok(Self::Complete { id: get_text(r)? }),
            2 => Ok(Self::Failed {
                id: get_text(r)?,
                why: get_text(r)?,
            }),
            _ => Err(Error::Invalid("news of a task")),
        }
    }
}

impl Encode for News {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Alive => w.u8(0),
            Self::Reply(id, reply) => {
                w.u8(1);
                w.u64(*id);
                w.put(reply);
            }
            Self::Named(wanted, names) => {
                w.u8(2);
                w.put(wanted);
                w.put(names);
            }
            Self::Task(news) => {
                w.u8(3);
                w.put(news);
            }
            Self::Open { client, place, basis } => {
                w.u8(4);
                w.u64(*client);
                w.put(place);
                w.put(basis);
            }
            Self::Closed(client) => {
                w.u8(5);
                w.u64(*client);
            }
            Self::Note { question, origin } => {
                w.u8(6);
                w.u64(*question);
                w.put(origin);
            }
            Self::Forget(key) => {
                w.u8(7);
                w.string(key);
            }
            Self::Tasks(keys) => {
                w.u8(8);
                w.put(keys);
            }
            Self::Suspect(what) => {
                w.u8(9);
                w.string(what);
            }
            Self::Ended(why) => {
                w.u8(10);
                w.string(why);
            }
        }
    }
}

impl Decode for News {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(match r.u8()? {
            0 => Self::Alive,
            1 => Self::Reply(r.u64()?, r.get()?),
            2 => Self::Named(r.get()?, r.get()?),
            3 => Self::Task(r.get()?),
            4 => Self::Open {
                client: r.u64()?,
                place: r.get()?,
                basis: r.get()?,
            },
            5 => Self::Closed(r.u64()?),
            6 => Self::Note {
                question: r.u64()?,
                origin: r.get()?,
            },
            7 => Self::Forget(r.get()?),
            8 => Self::Tasks(r.get()?),
            9 => Self::Suspect(r.get()?),
            10 => Self::Ended(r.get()?),
            _ => return Err(Error::Invalid("news")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;
    use spirula_cephx::caps::Access;
    use spirula_cephx::{CryptoKey, KeyType};
    use spirula_denc::{UTime, encode_to_vec};

    use spirula_maps::{Epoch, PoolId};

    use super::*;

    fn key() -> CryptoKey {
        CryptoKey::from_parts(KeyType::Aes, UTime::default(), &[7; 16]).unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn place() -> Place {
        Place {
            pool: PoolId::new(3),
            namespace: "n".into(),
        }
    }

    fn origin() -> Origin {
        Origin {
            key: "task/3/n/x".into(),
            text: "{}".into(),
        }
    }

    /// Checks that a value survives encoding and decoding.
    fn same<T: Encode + Decode + std::fmt::Debug>(value: T) {
        let encoded = encode_to_vec(&value);
        let decoded: T = decode_all(&encoded).unwrap();
        assert_eq!(format!("{value:?}"), format!("{decoded:?}"));
        assert_eq!(encode_to_vec(&decoded), encoded);
        for end in 0..encoded.len() {
            assert!(
                decode_all::<T>(&encoded[..end]).is_err(),
                "{end} bytes of {value:?}"
            );
        }
    }

    #[test]
    fn everything_arrives_as_it_was_sent() {
        same(Start {
            name: "mgr.a.1".parse().unwrap(),
            key: key(),
            monitors: vec!["v2:127.0.0.1:3300/0".parse().unwrap()],
            addresses: vec![
                "v2:127.0.0.1:0/7".parse().unwrap(),
                "v2:[::1]:0/8".parse().unwrap(),
            ],
            modes: ModeLists::default(),
            osdmap_epoch: Epoch::new(9),
            heartbeat: Duration::from_millis(1500),
        });
        let images = ImagesToName {
            pool: PoolId::new(0),
            namespace: String::new(),
            ids: vec!["a".into(), "b".into()],
        };
        let holder = Holder {
            name: "client.x".parse().unwrap(),
            cap: MgrCap::parse("profile rbd pool=a, allow r network 10.0.0.0/8").unwrap(),
            ip: Some("10.1.2.3".parse().unwrap()),
            access: Access::RW,
        };
        for authority in [Authority::All, Authority::Limited(Box::new(holder))] {
            same(Request::Ask(
                7,
                Box::new(Question {
                    prefix: "rbd task list".into(),
                    args: object(json!({"task_id": "x", "more": [1, 2.5, null]})),
                    authority,
                    default_pool: "rbd".into(),
                }),
            ));
        }
        same(Request::NameImages(images.clone()));
        same(Request::Login {
            client: 1,
            login: None,
        });
        same(Request::Login {
            client: 2,
            login: Some(Login {
                name: "mgr.a.2".parse().unwrap(),
                key: key(),
            }),
        });
        same(Request::Noted {
            question: 5,
            done: true,
        });
        same(News::Alive);
        same(News::Reply(u64::MAX, Reply::error(errno::ENOENT, "no")));
        same(News::Named(
            images,
            BTreeMap::from([("a".into(), "image".into())]),
        ));
        let progress = |share| TaskNews::Progress {
            id: "i".into(),
            message: "m".into(),
            share,
            refs: object(json!({"action": "flatten"})),
        };
        same(News::Task(progress(0.25)));
        same(News::Task(TaskNews::Complete { id: "i".into() }));
        same(News::Task(TaskNews::Failed {
            id: "i".into(),
            why: "no".into(),
        }));
        for basis in [
            Basis::Asked(4),
            Basis::Stored {
                origin: origin(),
                at: Some(place()),
            },
            Basis::Stored {
                origin: origin(),
                at: None,
            },
        ] {
            same(News::Open {
                client: 3,
                place: place(),
                basis,
            });
        }
        same(News::Closed(3));
        same(News::Note {
            question: 3,
            origin: origin(),
        });
        same(News::Forget("k".into()));
        same(News::Tasks(BTreeSet::from(["a".into(), "b".into()])));
        same(News::Suspect("s".into()));
        same(News::Ended("e".into()));
        for share in [f64::NAN, -0.5, 1.5, f64::INFINITY] {
            let encoded = encode_to_vec(&News::Task(progress(share)));
            assert!(decode_all::<News>(&encoded).is_err(), "{share}");
        }
    }

    #[test]
    fn json_that_is_long_or_nested_without_end_is_refused() {
        let news = |refs: &str| {
            let mut w = Writer::new();
            w.u8(3);
            w.u8(0);
            w.string("i");
            w.string("m");
            w.f64(0.5);
            w.string(refs);
            decode_all::<News>(w.as_slice())
        };
        assert!(news("{\"a\":[0]}").is_ok());
        assert!(news(&format!("{{\"a\":[{}0]}}", "0,".repeat(MAX_TEXT / 2))).is_err());
        assert!(news(&format!("{{\"a\":{}", "[".repeat(10_000))).is_err());
        assert!(news("[]").is_err());
    }

    #[tokio::test]
    async fn frames_are_bounded() {
        let (mut here, mut there) = tokio::io::duplex(64);
        let frame = frame(&News::Closed(8)).unwrap();
        send(&mut here, &frame).await.unwrap();
        assert!(matches!(receive::<News>(&mut there).await, Ok(News::Closed(8))));
        let reply = |len: usize| News::Reply(1, Reply::output("x".repeat(len)));
        assert!(super::frame(&reply(MAX_FRAME)).is_none());
        let told = frame_of_news(&reply(MAX_FRAME)).unwrap();
        let told: News = decode_all(&told[4..]).unwrap();
        let News::Reply(1, told) = told else {
            panic!("{told:?}")
        };
        assert_eq!(told.code, -errno::E2BIG);
        assert!(frame_of_news(&News::Forget("x".repeat(MAX_FRAME))).is_none());

        send(&mut here, &u32::MAX.to_le_bytes()).await.unwrap();
        let refused = receive::<News>(&mut there).await;
        assert!(matches!(refused, Err(FrameError::TooLarge(_))), "{refused:?}");
        send(&mut here, &[9, 0, 0, 0, 5, 1]).await.unwrap();
        drop(here);
        let refused = receive::<News>(&mut there).await;
        assert!(matches!(refused, Err(FrameError::Gone)), "{refused:?}");
    }
}
