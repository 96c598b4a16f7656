use super::*;

fn exports() -> Vec<ExportInfo> {
    let export = |name: &str, description: &str, read_only| ExportInfo {
        name: name.into(),
        description: description.into(),
        geometry: Geometry {
            size: 1 << 30,
            read_only,
            blocks: BlockSizes::default(),
        },
    };
    vec![export("disk", "a disk", false), export("old", "", true)]
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut out = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    out.extend(option.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
    out
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn info(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut out = string(name);
    out.extend((wanted.len() as u16).to_be_bytes());
    out.extend(wanted.iter().flat_map(|w| w.to_be_bytes()));
    out
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut out = string(name);
    out.extend((queries.len() as u32).to_be_bytes());
    out.extend(queries.iter().flat_map(|q| string(q)));
    out
}

/// A client that has answered the greeting.
struct Client {
    negotiation: Negotiation,
    exports: Vec<ExportInfo>,
}

impl Client {
    fn with_flags(policy: TlsPolicy, flags: u32) -> (Self, Step) {
        let mut negotiation = Negotiation::greeting(policy);
        assert_eq!(
            &negotiation.take_output()[..],
            b"NBDMAGICIHAVEOPT\x00\x03",
            "the greeting"
        );
        let exports = exports();
        let step = negotiation.step(&mut BytesMut::from(&flags.to_be_bytes()[..]), &exports);
        (Self { negotiation, exports }, step)
    }

    fn new(policy: TlsPolicy) -> Self {
        let (client, step) = Self::with_flags(policy, 3);
        assert_eq!(step, Step::Read);
        client
    }

    /// Sends bytes and returns the step and the replies: type and data.
    fn send(&mut self, bytes: &[u8]) -> (Step, Vec<(u32, Bytes)>) {
        let mut input = BytesMut::from(bytes);
        let step = self.negotiation.step(&mut input, &self.exports);
        let mut output = self.negotiation.take_output();
        let mut replies = Vec::new();
        while !output.is_empty() {
            assert_eq!(output.get_u64(), wire::OPTION_REPLY_MAGIC);
            output.advance(4);
            let kind = output.get_u32();
            let len = output.get_u32() as usize;
            replies.push((kind, output.split_to(len)));
        }
        (step, replies)
    }

    fn ask(&mut self, kind: u32, data: &[u8]) -> (Step, Vec<(u32, Bytes)>) {
        self.send(&option(kind, data))
    }

    /// The type of the last reply to an option.
    fn end(&mut self, kind: u32, data: &[u8]) -> u32 {
        self.ask(kind, data).1.last().unwrap().0
    }
}

#[test]
fn go_tells_what_was_asked_and_begins() {
    let mut client = Client::new(TlsPolicy::Off);
    let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 77];
    let (step, replies) = client.ask(option::GO, &info("disk", &wanted));
    assert_eq!(
        step,
        Step::Transmit(Agreed {
            export: 0,
            structured: false,
            allocation: false
        })
    );
    let data: Vec<&[u8]> = replies.iter().map(|r| &r.1[..]).collect();
    assert_eq!(data[0], b"\0\0\0\0\0\0\x40\0\0\0\x0d\x6d");
    assert_eq!(data[1], b"\0\x01disk");
    assert_eq!(data[2], b"\0\x02a disk");
    assert_eq!(data[3], b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0");
    assert_eq!(replies[4], (option_reply::ACK, Bytes::new()));
}

#[test]
fn exports_are_found_by_name() {
    let mut client = Client::new(TlsPolicy::Off);
    assert_eq!(client.end(option::INFO, &info("disk", &[])), option_reply::ACK);
    assert_eq!(
        client.end(option::INFO, &info("nothing", &[])),
        option_reply::ERR_UNKNOWN
    );
    assert_eq!(
        client.end(option::INFO, &info("", &[])),
        option_reply::ERR_UNKNOWN
    );
    let (_, replies) = client.ask(option::LIST, &[]);
    assert_eq!(&replies[0].1[..], b"\0\0\0\x04diska disk");
    assert_eq!(&replies[1].1[..], b"\0\0\0\x03old");
    assert_eq!(client.end(option::LIST, b"x"), option_reply::ERR_INVALID);
    client.exports.truncate(1);
    let (step, _) = client.ask(option::GO, &info("", &[]));
    assert!(matches!(step, Step::Transmit(Agreed { export: 0, .. })));
}

#[test]
fn a_context_counts_for_its_export() {
    for (last, allocation) in [("disk", true), ("old", false)] {
        let mut client = Client::new(TlsPolicy::Off);
        let all = contexts("disk", &["base:allocation", "qemu:dirty-bitmap:x"]);
        assert_eq!(
            client.end(option::SET_META_CONTEXT, &all),
            option_reply::ERR_INVALID
        );
        assert_eq!(client.end(option::STRUCTURED_REPLY, &[]), option_reply::ACK);
        let (_, replies) = client.ask(option::SET_META_CONTEXT, &all);
        assert_eq!(replies[0].0, option_reply::META_CONTEXT);
        assert_eq!(&replies[0].1[..], b"\0\0\0\x01base:allocation");
        let (step, _) = client.ask(option::GO, &info(last, &[]));
        let Step::Transmit(agreed) = step else {
            panic!("{step:?}")
        };
        assert_eq!((agreed.structured, agreed.allocation), (true, allocation));
    }
}

#[test]
fn contexts_are_listed() {
    let mut client = Client::new(TlsPolicy::Off);
    client.end(option::STRUCTURED_REPLY, &[]);
    for (queries, found) in [
        (&[][..], 1),
        (&["base:"], 1),
        (&["base:allocation", "base:"], 1),
        (&["qemu:"], 0),
    ] {
        let (_, replies) = client.ask(option::LIST_META_CONTEXT, &contexts("disk", queries));
        assert_eq!(replies.len() - 1, found, "{queries:?}");
    }
    // Only its own name chooses a context.
    let (_, replies) = client.ask(option::SET_META_CONTEXT, &contexts("disk", &["base:"]));
    assert_eq!(replies.len(), 1);
}

#[test]
fn export_name_has_zeroes_behind_it_unless_agreed() {
    for (flags, len) in [(3, 10), (1, 134), (0, 134)] {
        let (mut client, _) = Client::with_flags(TlsPolicy::Off, flags);
        let mut input = BytesMut::from(&option(option::EXPORT_NAME, b"old")[..]);
        input.put_slice(b"request");
        let step = client.negotiation.step(&mut input, &client.exports);
        assert!(matches!(step, Step::Transmit(Agreed { export: 1, .. })));
        let output = client.negotiation.take_output();
        assert_eq!(output.len(), len);
        assert_eq!(&output[8..10], b"\x05\x0f");
        assert_eq!(&input[..], b"request", "what follows stays");
    }
    let mut client = Client::new(TlsPolicy::Off);
    assert_eq!(client.ask(option::EXPORT_NAME, b"nothing").0, Step::Close);
}

#[test]
fn without_tls_nothing_is_told_where_it_is_required() {
    let mut client = Client::new(TlsPolicy::Required);
    for (kind, data) in [
        (option::LIST, vec![]),
        (option::GO, info("disk", &[])),
        (99, vec![]),
    ] {
        assert_eq!(client.end(kind, &data), option_reply::ERR_TLS_REQD);
    }
    assert_eq!(client.end(option::STARTTLS, b"x"), option_reply::ERR_INVALID);
    let (step, replies) = client.ask(option::STARTTLS, &[]);
    assert_eq!((step, replies[0].0), (Step::StartTls, option_reply::ACK));
    client.negotiation.secured();
    assert_eq!(client.end(option::STARTTLS, &[]), option_reply::ERR_INVALID);
    assert!(matches!(
        client.ask(option::GO, &info("disk", &[])).0,
        Step::Transmit(_)
    ));
    let mut client = Client::new(TlsPolicy::Required);
    assert_eq!(client.ask(option::EXPORT_NAME, b"disk").0, Step::Close);
    let mut client = Client::new(TlsPolicy::Off);
    assert_eq!(client.end(option::STARTTLS, &[]), option_reply::ERR_POLICY);
}

#[test]
fn tls_forgets_what_came_before_it() {
    let mut client = Client::new(TlsPolicy::Optional);
    client.end(option::STRUCTURED_REPLY, &[]);
    client.end(option::SET_META_CONTEXT, &contexts("disk", &["base:allocation"]));
    client.ask(option::STARTTLS, &[]);
    client.negotiation.secured();
    let (step, _) = client.ask(option::GO, &info("disk", &[]));
    assert_eq!(
        step,
        Step::Transmit(Agreed {
            export: 0,
            structured: false,
            allocation: false
        })
    );
    // Bytes in the clear behind STARTTLS come from an attacker.
    let mut client = Client::new(TlsPolicy::Optional);
    let bytes = [
        option(option::STARTTLS, &[]),
        option(option::GO, &info("disk", &[])),
    ]
    .concat();
    assert_eq!(client.send(&bytes).0, Step::Close);
}

#[test]
fn bad_bytes_end_the_session_or_the_option() {
    assert_eq!(Client::with_flags(TlsPolicy::Off, 4).1, Step::Close);
    let (mut client, _) = Client::with_flags(TlsPolicy::Off, 2);
    assert_eq!(
        client.ask(option::LIST, &[]).0,
        Step::Close,
        "options need the fixed style"
    );
    let mut client = Client::new(TlsPolicy::Off);
    assert_eq!(client.send(&[b'x'; 16]).0, Step::Close);
    let mut client = Client::new(TlsPolicy::Off);
    assert_eq!(client.end(11, &[]), option_reply::ERR_UNSUP, "extended headers");
    for data in [
        &b""[..],
        b"\0\0\0\x05disk\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0\0\x02\0\0",
    ] {
        assert_eq!(client.end(option::GO, data), option_reply::ERR_INVALID);
    }
    client.end(option::STRUCTURED_REPLY, &[]);
    let mut endless = string("disk");
    endless.extend(u32::MAX.to_be_bytes());
    assert_eq!(
        client.end(option::SET_META_CONTEXT, &endless),
        option_reply::ERR_INVALID
    );
    let (step, replies) = client.ask(option::ABORT, b"ignored");
    assert_eq!((step, replies[0].0), (Step::Close, option_reply::ACK));
}

#[test]
fn long_options_are_passed_over() {
    let mut client = Client::new(TlsPolicy::Off);
    let bytes = option(option::LIST, &vec![0; MAX_OPTION as usize + 1]);
    for piece in bytes[..bytes.len() - 1].chunks(10_000) {
        assert_eq!(client.send(piece), (Step::Read, vec![]));
    }
    let (step, replies) = client.send(&bytes[bytes.len() - 1..]);
    assert_eq!((step, replies[0].0), (Step::Again, option_reply::ERR_TOO_BIG));
    assert_eq!(client.end(option::LIST, &[]), option_reply::ACK);
}

#[test]
fn who_ends_agrees_on_nothing() {
    let mut client = Client::new(TlsPolicy::Off);
    client.negotiation.close();
    assert_eq!(
        client.end(option::GO, &info("disk", &[])),
        option_reply::ERR_SHUTDOWN
    );
    assert_eq!(client.ask(option::ABORT, &[]).0, Step::Close);
    client.negotiation.close();
    assert_eq!(client.ask(option::EXPORT_NAME, b"disk").0, Step::Close);
}

/// However the bytes are cut, the same comes out.
#[test]
fn options_may_come_in_pieces() {
    let bytes = [
        option(option::STRUCTURED_REPLY, &[]),
        option(option::SET_META_CONTEXT, &contexts("disk", &["base:allocation"])),
        option(option::GO, &info("disk", &[info::NAME])),
    ]
    .concat();
    for cut in 1..bytes.len() {
        let mut client = Client::new(TlsPolicy::Off);
        let mut input = BytesMut::new();
        let mut last = Step::Read;
        for piece in [&bytes[..cut], &bytes[cut..]] {
            input.put_slice(piece);
            loop {
                last = client.negotiation.step(&mut input, &client.exports);
                if last != Step::Again {
                    break;
                }
            }
        }
        assert!(
            matches!(last, Step::Transmit(Agreed { allocation: true, .. })),
            "{cut}"
        );
        assert!(input.is_empty());
    }
}
