//! A task and its record, which Ceph's manager understands as well.

use chrono::{DateTime, Local, TimeDelta, Utc};
use serde_json::{Map, Value, json};
use spirula_text::python;

use super::spec::ImageSpec;
use crate::rights::{Origin, Place};

/// The work on the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Flatten,
    Remove,
    TrashRemove,
    MigrationExecute,
    MigrationCommit,
    MigrationAbort,
}

const ACTIONS: &[(&str, Action)] = &[
    ("flatten", Action::Flatten),
    ("remove", Action::Remove),
    ("trash remove", Action::TrashRemove),
    ("migrate execute", Action::MigrationExecute),
    ("migrate commit", Action::MigrationCommit),
    ("migrate abort", Action::MigrationAbort),
];

impl Action {
    fn name(self) -> &'static str {
        let found = ACTIONS.iter().find(|(_, a)| *a == self);
        found.map_or("", |(name, _)| name)
    }
}

/// The image and the action of a task. Equal ones mean equal tasks.
pub(crate) type Refs = Map<String, Value>;

/// The references of a new task: an image by its name, and its id if that is known, or by its id in
/// the trash.
pub(crate) fn refs(action: Action, spec: &ImageSpec, id: Option<&str>) -> Refs {
    let mut refs = Refs::new();
    let mut put = |key: &str, value: &str| drop(refs.insert(key.to_owned(), json!(value)));
    put("action", action.name());
    put("pool_name", &spec.pool);
    put("pool_namespace", &spec.namespace);
    if action != Action::TrashRemove {
        put("image_name", &spec.image);
    }
    if let Some(id) = id {
        put(IMAGE_ID, id);
    }
    refs
}

const IMAGE_ID: &str = "image_id";

/// Whether `asked`, which may lack the image's id, means the task with `known`.
pub(crate) fn is_meant(known: &Refs, asked: &Refs) -> bool {
    if asked.contains_key(IMAGE_ID) || !known.contains_key(IMAGE_ID) {
        return known == asked;
    }
    let mut known = known.clone();
    known.shift_remove(IMAGE_ID);
    known == *asked
}

/// A task.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Its sequence number in its pool and namespace.
    pub(crate) sequence: u64,
    /// Its name: a UUID.
    pub(crate) id: String,
    /// Its description, for people.
    pub(crate) message: String,
    pub(crate) refs: Refs,
    pub(crate) action: Action,
    /// Why the last attempt failed.
    pub(crate) retry_message: Option<String>,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// When it is due for another attempt.
    pub(crate) retry_time: Option<DateTime<Utc>>,
    pub(crate) in_progress: bool,
    /// The part that is done, from 0 to 1.
    pub(crate) progress: f64,
    pub(crate) canceled: bool,
    /// Why it failed for good.
    pub(crate) failure: Option<String>,
    /// Whether progress displays know of it.
    pub(crate) is_posted: bool,
    /// The place of its record.
    pub(crate) home: Place,
    /// The text of its record.
    text: String,
}

/// The longest record of a task.
const MAX_TEXT: usize = 8 << 10;

/// The pause grows by this with each attempt, up to [`MAX_PAUSE`].
const PAUSE: TimeDelta = TimeDelta::seconds(30);
const MAX_PAUSE: TimeDelta = TimeDelta::seconds(300);

impl Task {
    /// A new task; `None` if `refs` can't be interpreted.
    pub(crate) fn new(sequence: u64, id: String, message: String, refs: Refs, home: Place) -> Option<Self> {
        let name = refs.get("action")?.as_str()?;
        let (_, action) = ACTIONS.iter().find(|(n, _)| *n == name)?;
        let image = match action {
            Action::TrashRemove => IMAGE_ID,
            _ => "image_name",
        };
        for key in ["pool_name", "pool_namespace", image] {
            refs.get(key)?.as_str()?;
        }
        let mut task = Self {
            sequence,
            id,
            message,
            refs,
            action: *action,
            retry_message: None,
            attempts: 0,
            retry_time: None,
            in_progress: false,
            progress: 0.0,
            canceled: false,
            failure: None,
            is_posted: false,
            home,
            text: String::new(),
        };
        task.text = task.to_json();
        Some(task)
    }

    /// Parses the record under a key in a place, in a pool of this name. A tenant may have written
    /// it: a record that is no task, or names another place, is refused. The error says why.
    pub(crate) fn stored(key: &[u8], value: &[u8], home: &Place, pool: &str) -> Result<Self, &'static str> {
        if value.len() > MAX_TEXT {
            return Err("too long");
        }
        let text = std::str::from_utf8(value).map_err(|_| "not text")?;
        let task = Self::from_json(text, home).ok_or("not a task")?;
        if task.key().as_bytes() != key {
            return Err("stored under another number");
        }
        if task.place() != (pool, home.namespace.as_str()) {
            return Err("about another pool or namespace than the one in which it is stored");
        }
        if [&task.id, &task.message]
            .iter()
            .any(|t| t.contains(char::is_control))
        {
            return Err("not text for people");
        }
        Ok(task)
    }

    fn from_json(text: &str, home: &Place) -> Option<Self> {
        let v: Value = serde_json::from_str(text).ok()?;
        let member = |key: &str| v.get(key)?.as_str().map(str::to_owned);
        let refs = v.get("refs")?.as_object()?.clone();
        let sequence = v.get("sequence")?.as_u64()?;
        let task = Self::new(sequence, member("id")?, member("message")?, refs, home.clone());
        task.map(|task| Self {
            text: text.to_owned(),
            ..task
        })
    }

    /// The origin under which the monitors know it.
    pub(crate) fn origin(&self) -> Origin {
        // With the place, as a tenant of another place may have given a task there the same name.
        let Place { pool, namespace } = &self.home;
        Origin {
            key: format!("task/{pool}/{namespace}/{}", self.id),
            text: self.text.clone(),
        }
    }

    /// The key of its record.
    pub(crate) fn key(&self) -> String {
        format!("{:016X}", self.sequence)
    }

    fn text(&self, key: &str) -> &str {
        self.refs.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// The image: by its id in the trash, else by its name.
    pub(crate) fn spec(&self) -> ImageSpec {
        let image = match self.action {
            Action::TrashRemove => IMAGE_ID,
            _ => "image_name",
        };
        ImageSpec {
            pool: self.text("pool_name").to_owned(),
            namespace: self.text("pool_namespace").to_owned(),
            image: self.text(image).to_owned(),
        }
    }

    /// The pool and namespace.
    pub(crate) fn place(&self) -> (&str, &str) {
        (self.text("pool_name"), self.text("pool_namespace"))
    }

    pub(crate) fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.retry_time.is_none_or(|at| at <= now)
    }

    /// Counts an attempt and sets the time of the next one.
    pub(crate) fn attempted(&mut self, now: DateTime<Utc>) {
        self.in_progress = false;
        self.attempts = self.attempts.saturating_add(1);
        let attempts = i32::try_from(self.attempts).unwrap_or(i32::MAX);
        let pause = PAUSE.checked_mul(attempts).unwrap_or(MAX_PAUSE).min(MAX_PAUSE);
        self.retry_time = now.checked_add_signed(pause);
    }

    /// The task in listings, and the first part of its record.
    pub(crate) fn to_value(&self) -> Value {
        let mut v = json!({
            "sequence": self.sequence, "id": self.id, "message": self.message, "refs": self.refs,
        });
        let mut put = |key: &str, value: Value| v[key] = value;
        if let Some(why) = &self.retry_message {
            put("retry_message", json!(why));
        }
        if self.attempts > 0 {
            put("retry_attempts", json!(self.attempts));
        }
        if let Some(at) = self.retry_time {
            put("retry_time", json!(local_time(at)));
        }
        if self.in_progress {
            put("in_progress", json!(true));
            put("progress", json!(self.progress));
        }
        if self.canceled {
            put("canceled", json!(true));
        }
        v
    }

    /// As [`Task::to_value`], on one line.
    pub(crate) fn to_json(&self) -> String {
        python::dumps(&self.to_value())
    }
}

/// The local time of this process, as Python's `datetime.isoformat` writes it.
fn local_time(at: DateTime<Utc>) -> String {
    let local = at.with_timezone(&Local);
    let format = if local.timestamp_subsec_micros() == 0 {
        "%Y-%m-%dT%H:%M:%S"
    } else {
        "%Y-%m-%dT%H:%M:%S%.6f"
    };
    local.format(format).to_string()
}

#[cfg(test)]
mod tests {
    use spirula_maps::PoolId;

    use super::*;

    fn spec() -> ImageSpec {
        ImageSpec::parse("p/n/ä", "rbd").unwrap()
    }

    /// Written by Ceph 16.2's own class for tasks.
    const OFFICIAL: &str = r#"{"sequence": 1, "id": "0b4ac5b2-26e0-4dd2-b5ea-b9a4e1ad6d1f", "message": "Flattening image p/n/\u00e4", "refs": {"action": "flatten", "pool_name": "p", "pool_namespace": "n", "image_name": "\u00e4", "image_id": "10226b8b4567"}}"#;
    /// The fields that it adds after two attempts.
    const TRIED: &str = r#", "retry_message": "[errno 39] x", "retry_attempts": 2, "retry_time": "1970-01-01T00:01:00.000678", "in_progress": true, "progress": 0.3333333333333333, "canceled": true}"#;

    fn home() -> Place {
        Place {
            pool: PoolId::new(1),
            namespace: "n".into(),
        }
    }

    fn official() -> Task {
        Task::stored(b"0000000000000001", OFFICIAL.as_bytes(), &home(), "p").unwrap()
    }

    #[test]
    fn tasks_are_stored_as_the_official_manager_stores_them() {
        let task = official();
        assert_eq!(task.to_json(), OFFICIAL);
        assert_eq!(task.key(), "0000000000000001");
        assert_eq!((task.action, task.spec()), (Action::Flatten, spec()));
        assert_eq!(task.refs, refs(Action::Flatten, &spec(), Some("10226b8b4567")));
        for broken in [
            "",
            "[]",
            "{}",
            r#"{"sequence": 1, "id": "x", "message": "m", "refs": {"action": "sleep"}}"#,
            r#"{"sequence": 1, "id": "x", "message": "m", "refs": {"action": "remove", "pool_name": "p", "pool_namespace": ""}}"#,
            r#"{"sequence": -1, "id": "x", "message": "m", "refs": {"action": "remove", "pool_name": "p", "pool_namespace": "", "image_name": "i"}}"#,
        ] {
            let read = Task::stored(b"0000000000000001", broken.as_bytes(), &home(), "p");
            assert_eq!(read.err(), Some("not a task"), "{broken}");
        }
    }

    /// A tenant that may write a pool may store any record there.
    #[test]
    fn a_task_is_about_the_place_where_it_is_stored() {
        let stored = |key: &str, text: &str, namespace: &str, pool: &str| {
            let home = Place {
                pool: PoolId::new(1),
                namespace: namespace.to_owned(),
            };
            Task::stored(key.as_bytes(), text.as_bytes(), &home, pool).err()
        };
        let key = "0000000000000001";
        let elsewhere = Some("about another pool or namespace than the one in which it is stored");
        assert_eq!(stored(key, OFFICIAL, "n", "p"), None);
        assert_eq!(stored(key, OFFICIAL, "n", "q"), elsewhere);
        assert_eq!(stored(key, OFFICIAL, "", "p"), elsewhere);
        let other = Some("stored under another number");
        assert_eq!(stored("0000000000000002", OFFICIAL, "n", "p"), other);
        assert_eq!(stored("1", OFFICIAL, "n", "p"), other);
        let forged = OFFICIAL.replace("Flattening", r"\u001b[2J");
        assert_eq!(stored(key, &forged, "n", "p"), Some("not text for people"));
        let padded = OFFICIAL.to_owned() + &" ".repeat(MAX_TEXT);
        assert_eq!(stored(key, &padded, "n", "p"), Some("too long"));
        let deep = "[".repeat(4000) + &"]".repeat(4000);
        assert_eq!(stored(key, &deep, "n", "p"), Some("not a task"));
        let deep = OFFICIAL.replace("\"p\"", &format!("{}1{}", "[".repeat(1000), "]".repeat(1000)));
        assert_eq!(stored(key, &deep, "n", "p"), Some("not a task"));
    }

    #[test]
    fn what_was_changed_in_the_pool_has_another_origin() {
        let (task, changed) = (official(), OFFICIAL.replace("Flattening", "Removing"));
        assert_eq!(task.origin().text, OFFICIAL);
        let changed = Task::stored(b"0000000000000001", changed.as_bytes(), &home(), "p").unwrap();
        assert_eq!(changed.origin().key, task.origin().key);
        assert_ne!(changed.origin(), task.origin());
    }

    #[test]
    fn a_task_is_meant_without_its_images_id_too() {
        let known = refs(Action::Remove, &spec(), Some("1"));
        assert!(is_meant(&known, &refs(Action::Remove, &spec(), None)));
        assert!(is_meant(&known, &known));
        assert!(!is_meant(&known, &refs(Action::Remove, &spec(), Some("2"))));
        assert!(!is_meant(&known, &refs(Action::Flatten, &spec(), None)));
    }

    #[test]
    fn the_pause_between_attempts_grows_to_a_limit() {
        let mut task = official();
        let now = DateTime::UNIX_EPOCH;
        for (attempt, seconds) in [(1, 30), (2, 60), (3, 90), (10, 300), (11, 300)] {
            while task.attempts < attempt {
                task.attempted(now);
            }
            assert_eq!(task.retry_time, Some(now + TimeDelta::seconds(seconds)));
            assert!(!task.is_due(now) && task.is_due(now + TimeDelta::seconds(seconds)));
        }
        let shown = task.to_value();
        assert_eq!(shown["retry_attempts"], 11);
        assert_eq!(
            shown["retry_time"].as_str().map(str::len),
            Some("1970-01-01T00:05:00".len())
        );
    }

    #[test]
    fn a_task_that_was_tried_is_shown_as_the_official_manager_shows_it() {
        let mut task = official();
        let now = DateTime::UNIX_EPOCH + TimeDelta::microseconds(678);
        (0..2).for_each(|_| task.attempted(now));
        task.retry_message = Some("[errno 39] x".into());
        (task.in_progress, task.progress, task.canceled) = (true, 1.0 / 3.0, true);
        let (shown, time) = (task.to_json(), local_time(now + TimeDelta::seconds(60)));
        let want = OFFICIAL.trim_end_matches('}').to_owned() + "}" + TRIED;
        assert_eq!(shown, want.replace("1970-01-01T00:01:00.000678", &time));
        assert!(time.ends_with(":00.000678"), "{time}");
    }
}
