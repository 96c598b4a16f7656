//! An authentication that admits every peer that knows the word, with fixed keys.

use bytes::Bytes;
use spirula_denc::EntityType;
use spirula_errno::Errno;

use crate::shell::Negotiated;
use crate::{AcceptAuth, AcceptReply, AuthStart, ConMode, ConnectAuth, SessionKeys};

pub(super) fn keys() -> SessionKeys {
    SessionKeys {
        session_key: vec![7; 16].into(),
        connection_secret: (0..64).collect::<Vec<u8>>().into(),
    }
}

/// Asks one more round, then checks the word.
#[derive(Default)]
pub(super) struct Porter(Vec<Bytes>);

impl AcceptAuth for Porter {
    type Info = Vec<Bytes>;

    async fn request(&mut self, _: EntityType, method: u32, _: ConMode, payload: Bytes) -> AcceptReply {
        if method != 2 {
            return AcceptReply::Bad {
                errno: spirula_errno::EOPNOTSUPP,
                allowed_methods: vec![2],
            };
        }
        self.0.push(payload);
        AcceptReply::More("word?".into())
    }

    async fn more(&mut self, payload: Bytes) -> AcceptReply {
        if payload != "spirula" {
            return AcceptReply::Bad {
                errno: spirula_errno::EACCES,
                allowed_methods: vec![2],
            };
        }
        self.0.push(payload);
        AcceptReply::Done {
            global_id: 4117,
            payload: "welcome".into(),
            keys: keys(),
        }
    }

    fn into_info(self) -> Self::Info {
        self.0
    }
}

pub(super) struct Guest {
    pub(super) word: &'static str,
    pub(super) method: u32,
    pub(super) keys: SessionKeys,
}

impl Guest {
    pub(super) fn new(word: &'static str) -> Self {
        Self {
            word,
            method: 2,
            keys: keys(),
        }
    }
}

impl ConnectAuth for Guest {
    fn start(&mut self) -> Result<AuthStart, Errno> {
        Ok(AuthStart {
            method: self.method,
            payload: "hello".into(),
        })
    }

    fn refused(&mut self, method: u32, errno: Errno, allowed: &[u32]) -> Result<AuthStart, Errno> {
        if allowed.contains(&method) {
            return Err(errno);
        }
        self.method = allowed[0];
        self.start()
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, Errno> {
        assert_eq!(payload, "word?");
        Ok(self.word.into())
    }

    fn done(&mut self, n: Negotiated) -> Result<SessionKeys, Errno> {
        assert_eq!((n.global_id, n.payload), (4117, "welcome".into()));
        Ok(self.keys.clone())
    }
}
