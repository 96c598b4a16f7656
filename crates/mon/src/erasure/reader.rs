//! Reads properties of a profile as the official plugins do: what is missing is filled in, and of
//! all complaints the first one is told.

use super::Profile;
use crate::command::{Reply, errno, refuse};

/// Reads one profile.
pub(super) struct Reader<'a> {
    pub(super) profile: &'a mut Profile,
    complaint: Option<String>,
}

/// A number as `strict_strtol` of Ceph's `src/common/strtol.cc` reads it.
pub(super) fn integer(text: &str) -> Result<i32, String> {
    let n = spirula_conf::amount::integer(text)?;
    i32::try_from(n).map_err(|_| format!("The option value '{text}' seems to be invalid"))
}

impl<'a> Reader<'a> {
    pub(super) fn new(profile: &'a mut Profile) -> Self {
        Self {
            profile,
            complaint: None,
        }
    }

    /// Notes why the profile is refused.
    pub(super) fn complain(&mut self, why: impl Into<String>) {
        self.complaint.get_or_insert_with(|| why.into());
    }

    /// The property; the default where it is missing or empty.
    pub(super) fn text(&mut self, name: &str, default: &str) -> String {
        let value = self.profile.entry(name.to_owned()).or_default();
        if value.is_empty() {
            default.clone_into(value);
        }
        value.clone()
    }

    /// A property that is a number.
    pub(super) fn int(&mut self, name: &str, default: i32) -> i32 {
        let value = self.text(name, &default.to_string());
        integer(&value).unwrap_or_else(|why| {
            self.complain(format!(
                "could not convert {name}={value} to int because {why}, set to default {default}"
            ));
            default
        })
    }

    /// A property that is yes or no; whatever is neither is no.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        matches!(self.text(name, "false").as_str(), "yes" | "true")
    }

    /// The numbers of pieces with data and without, that there may be.
    pub(super) fn counts(&mut self, k: i32, m: i32) {
        if k < 2 {
            self.complain(format!("k={k} must be >= 2"));
        } else if m < 1 {
            self.complain(format!("m={m} must be >= 1"));
        }
    }

    /// The end: what was complained of, or the numbers.
    pub(super) fn finish(self, k: i32, m: i32) -> Result<(u32, u32), Reply> {
        match self.complaint {
            Some(why) => refuse(errno::EINVAL, why),
            None => Ok((k.unsigned_abs(), m.unsigned_abs())),
        }
    }
}
