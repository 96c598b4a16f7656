//! JSON input of a monitor: commands, and requests of an admin socket.

mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Map, Value, json};
use spirula_asok::perf::{Counter, Logger, Times, count, gauge, times};
use spirula_asok::{Answer, Command, Failure, Handler};
use spirula_conf::options::Values;
use spirula_denc::Micros;

use crate::input::Input;
use world::{ADMIN, World};

/// The most commands of an input.
const MOST: usize = 8;

/// A parameter of a command: its name, and its type in Ceph.
type Param = (String, String);

/// Prefixes of commands with their parameters, as `get_command_descriptions` has them.
fn signatures(descriptions: &Value) -> Vec<(String, Vec<Param>)> {
    let one = |c: &Value| {
        let mut words = Vec::new();
        let mut params = Vec::new();
        for part in c["sig"].as_array()? {
            match part {
                Value::String(word) => words.push(word.clone()),
                part => params.push((
                    part["name"].as_str()?.to_owned(),
                    part["type"].as_str().unwrap_or("CephString").to_owned(),
                )),
            }
        }
        Some((words.join(" "), params))
    };
    let all = descriptions.as_object().into_iter().flatten();
    all.filter_map(|(_, c)| one(c)).collect()
}

thread_local! {
    static SIGNATURES: Vec<(String, Vec<Param>)> = signatures(&spirula_mon::command::descriptions());
}

/// Values with a meaning in the cluster of the commands.
const USUAL: [&str; 24] = [
    "p",
    "osd.0",
    "0",
    "1",
    "1.0",
    "1.7",
    "default",
    "h1",
    "host",
    "replicated_rule",
    "client.admin",
    "client.x",
    "all",
    "on",
    "true",
    "ssd",
    "mon",
    "allow rw",
    "osd_max_backfills",
    "size",
    "noout",
    "127.0.0.1",
    "-1",
    "root=default",
];

/// A value of a parameter; mostly of a type that parameters have.
fn value(input: &mut Input<'_>) -> Option<Value> {
    let text = |input: &mut Input<'_>| String::from_utf8_lossy(input.blob()).into_owned();
    Some(match input.u8() {
        0 => return None,
        n @ 1..=24 => json!(USUAL[usize::from(n) - 1]),
        25 => json!(i64::from_le_bytes(input.array())),
        26 => json!(i32::from_le_bytes(input.array())),
        27 => json!(input.u8()),
        28 => json!(input.u16()),
        29 => json!(f64::from_le_bytes(input.array())),
        30 => json!(input.u8() & 1 != 0),
        31 => Value::Null,
        32 => (0..input.u8() % 5).map(|_| json!(text(input))).collect(),
        33 => (0..input.u8() % 5)
            .map(|_| json!(USUAL[usize::from(input.u8()) % USUAL.len()]))
            .collect(),
        34 => json!({ text(input): text(input) }),
        35 => serde_json::from_str(&text(input)).unwrap_or(Value::Null),
        _ => json!(text(input)),
    })
}

/// A command: an existing one with values for its parameters, or any text.
fn command(input: &mut Input<'_>) -> String {
    let number = usize::from(input.u16());
    let known = SIGNATURES.with(|all| all.get(number % (all.len() + 8)).cloned());
    let Some((prefix, params)) = known else {
        return String::from_utf8_lossy(input.blob()).into_owned();
    };
    let mut args = Map::from_iter([("prefix".to_owned(), json!(prefix))]);
    for (name, kind) in params {
        let value = match input.u8() {
            // As most callers have it.
            0 if kind == "CephBool" => Some(json!(true)),
            _ => value(input),
        };
        if let Some(value) = value {
            args.insert(name, value);
        }
    }
    if input.u8() % 4 == 1 {
        let format = ["json", "json-pretty", "xml", "plain"][usize::from(input.u8()) % 4];
        args.insert("format".to_owned(), json!(format));
    }
    Value::Object(args).to_string()
}

/// Commands to the monitor of a small cluster, one after the other, with their input. Each must be
/// answered, and the committed state must be sound.
pub(crate) fn commands(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    let mut asked = 0;
    while !input.is_empty() && asked < MOST {
        let command = command(&mut input);
        let with = match input.u8() {
            0..=127 => Vec::new(),
            _ => input.blob().to_vec(),
        };
        asked += 1;
        world.command(&command, &with);
    }
    world.pass(3);
    let answered = world.results.len();
    assert!(
        answered + world.handed_over == asked && !world.results.contains(&i32::MIN),
        "{asked} commands, {:?}, {} handed over",
        world.results,
        world.handed_over
    );
    world.check();
}

/// A daemon with an admin socket: options, counters, and a monitor for commands of `tell`.
struct Daemon {
    values: RefCell<Values>,
    world: RefCell<World>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "perf dump",
        params: &[("logger?", "CephString"), ("counter?", "CephString")],
        help: "counters",
    },
    Command {
        name: "perf schema",
        params: &[("logger?", "CephString"), ("counter?", "CephString")],
        help: "what they are",
    },
    Command {
        name: "tell",
        params: &[("cmd", "CephString")],
        help: "asks the monitor",
    },
];

fn counters() -> Vec<Counter> {
    vec![
        count("op_bytes", 7, "Bytes"),
        gauge("op_wip", 3, "Operations"),
        times(
            "op_latency",
            Times {
                count: 3,
                usec: Micros::from_secs(1),
            },
            "Time",
        ),
    ]
}

impl Handler for Daemon {
    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn version(&self) -> Value {
        json!({"version": "1"})
    }

    async fn run(&self, prefix: &str, args: &Map<String, Value>) -> Result<Answer, Failure> {
        let daemon = spirula_asok::config::Daemon {
            name: "osd.0",
            live: |name| name.starts_with("osd_"),
        };
        let mut values = self.values.borrow_mut();
        if let Some(answer) = spirula_asok::config::run(daemon, &mut values, prefix, args) {
            return answer;
        }
        let logger = Logger {
            name: "osd",
            counters: counters(),
            histograms: Vec::new(),
        };
        let name = |key| args.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(v) = spirula_asok::perf::run(&[logger], prefix, (name("logger"), name("counter"))) {
            return Ok(v.into());
        }
        // As the socket's arguments came, in place of a command of its own.
        let told = args.get("cmd").map_or_else(String::new, |cmd| match cmd {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let mon = &mut self.world.borrow_mut().mon;
        let reply = spirula_mon::command::tell(mon, ADMIN, &[told]);
        Ok(json!(reply.status).into())
    }
}

/// The future's value: no future here waits.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Requests to an admin socket: texts, or existing commands with values of any kind.
pub(crate) fn asok(data: &[u8]) {
    let mut input = Input::new(data);
    let daemon = Daemon {
        values: RefCell::new(Values::from_file(BTreeMap::new())),
        world: RefCell::new(World::new()),
    };
    let known: Vec<&Command> = COMMANDS.iter().chain(spirula_asok::config::COMMANDS).collect();
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let number = usize::from(input.u8());
        let request = match known.get(number % (known.len() + 2)) {
            None => input.blob().to_vec(),
            Some(command) => {
                let mut args = Map::from_iter([("prefix".to_owned(), json!(command.name))]);
                for (name, _) in command.params {
                    if let Some(value) = value(&mut input) {
                        args.insert(name.trim_end_matches(['?', '*']).to_owned(), value);
                    }
                }
                Value::Object(args).to_string().into_bytes()
            }
        };
        let answer = ready(spirula_asok::answer(&request, &daemon));
        assert!(answer.is_some(), "no answer");
    }
}
