//! The samples of ceph/ceph-object-corpus are decoded and encoded again to the same bytes, and no
//! input makes a decoder panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use proptest::prelude::*;
use spirula_cephx::wire::{
    Authenticate, Authorize, AuthorizeReply, Challenge, ChallengeBlob, RequestHeader, ResponseHeader,
    ServiceTicket, ServiceTicketInfo, ServiceTicketRequest, TicketBlob,
};
use spirula_cephx::{
    AuthCaps, AuthName, AuthTicket, CryptoKey, EntityAuth, ExpiringKey, RotatingSecrets, ServiceSecrets,
};
use spirula_denc::{Decode, Encode, Result, decode_all, encode_to_vec};

type Recode = fn(&[u8]) -> Result<Vec<u8>>;

fn recode<T: Encode + Decode>(bytes: &[u8]) -> Result<Vec<u8>> {
    decode_all::<T>(bytes).map(|v| encode_to_vec(&v))
}

const TYPES: &[(&str, Recode)] = &[
    ("AuthCapsInfo", recode::<AuthCaps>),
    ("AuthTicket", recode::<AuthTicket>),
    ("CephXAuthenticate", recode::<Authenticate>),
    ("CephXAuthorize", recode::<Authorize>),
    ("CephXAuthorizeChallenge", recode::<Challenge>),
    ("CephXAuthorizeReply", recode::<AuthorizeReply>),
    ("CephXChallengeBlob", recode::<ChallengeBlob>),
    ("CephXRequestHeader", recode::<RequestHeader>),
    ("CephXResponseHeader", recode::<ResponseHeader>),
    ("CephXServerChallenge", recode::<Challenge>),
    ("CephXServiceTicket", recode::<ServiceTicket>),
    ("CephXServiceTicketInfo", recode::<ServiceTicketInfo>),
    ("CephXServiceTicketRequest", recode::<ServiceTicketRequest>),
    ("CephXTicketBlob", recode::<TicketBlob>),
    ("CryptoKey", recode::<CryptoKey>),
    ("EntityAuth", recode::<EntityAuth>),
    ("EntityName", recode::<AuthName>),
    ("ExpiringCryptoKey", recode::<ExpiringKey>),
    ("RotatingSecrets", recode::<RotatingSecrets>),
    ("rotating part of KeyServerData", recode::<ServiceSecrets>),
];

fn samples() -> Vec<(&'static str, Recode, Vec<u8>)> {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    };
    let lines = include_str!("data/corpus.tsv")
        .lines()
        .filter(|l| !l.starts_with('#'));
    lines
        .map(|line| {
            let (name, bytes) = line.split_once('\t').unwrap();
            let (_, recode) = TYPES.iter().find(|(n, _)| *n == name).unwrap();
            (name, *recode, hex(bytes))
        })
        .collect()
}

#[test]
fn every_sample_survives() {
    let samples = samples();
    assert!(samples.len() > 100);
    for (name, recode, bytes) in samples {
        assert_eq!(recode(&bytes).as_deref(), Ok(&bytes[..]), "{name}");
    }
}

proptest! {
    #[test]
    fn no_decoder_panics_on_noise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (_, recode) in TYPES {
            let _ = recode(&bytes);
        }
    }

    #[test]
    fn no_decoder_panics_on_bent_samples(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
        let samples = samples();
        let (_, recode, mut bytes) = samples[which.index(samples.len())].clone();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        let _ = recode(&bytes);
    }
}
