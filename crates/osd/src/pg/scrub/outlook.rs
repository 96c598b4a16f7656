//! The share of its time that an OSD must give to deep scrubs to be in time, and when it will have
//! read everything.
//!
//! Both are arithmetic about all PGs of which the OSD has a copy, whoever leads them, and their next
//! deep scrubs. An OSD gives no more of its time than is needed while clients work, as each read makes
//! some client wait.

use super::hours::Week;

/// The least share of its time that an OSD gives to scrubs while clients work: so that one that need
/// not hurry ends some day.
const LEAST_SHARE: f64 = 0.02;
/// How much more than what is needed it gives, for what is not foreseen: others' slots, restarts.
const MARGIN: f64 = 1.5;

/// How fast an OSD reads for scrubs while it does not rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Bytes of contents per second.
    pub bytes: f64,
    /// Seconds that it takes to list an object and look it up.
    pub look: f64,
}

/// The next deep scrub of a PG of which the OSD has a copy. Times are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// Since the contents were last read.
    pub age: f64,
    /// The age at which the scrub is due.
    pub due: f64,
    /// The age at which the contents should have been read (`osd_deep_scrub_interval`).
    pub interval: f64,
    /// Until the machine's load keeps the scrub from beginning no longer; infinite if it always does.
    pub free_in: f64,
    /// The bytes that are left to be read here.
    pub bytes: f64,
    /// The objects that are left to be looked at.
    pub objects: f64,
}

/// What an OSD can do for its scrubs, and what it may.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Means {
    /// How fast it reads.
    pub speed: Speed,
    /// When scheduled scrubs are permitted.
    pub week: Week,
    /// The largest share of its time that it may read while clients work.
    pub most: f64,
    /// Seconds of pause for each object (`osd_scrub_sleep`).
    pub pause: f64,
    /// The part of the time in which clients work.
    pub busy: f64,
    /// The part of its slots (`osd_max_scrubs`) that are in use while scrubs wait.
    pub taken: f64,
    /// The part of the time in which the machine's load lets scrubs begin.
    pub calm: f64,
}

/// What keeps an OSD from reading its data in time, in the order in which they are considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// The permitted hours.
    Hours,
    /// The permitted days.
    Days,
    /// The pauses.
    Sleep,
    /// The largest share of time.
    Share,
    /// The number of scrubs at a time.
    Slots,
    /// The machine's load.
    Load,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 6] = [
        Self::Hours,
        Self::Days,
        Self::Sleep,
        Self::Share,
        Self::Slots,
        Self::Load,
    ];
}

/// How old the contents of a PG will be when they have been read, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// The age, which is infinite if they never will be.
    pub age: f64,
    /// The age at which they should have been read.
    pub interval: f64,
}

impl End {
    /// The age in intervals.
    pub fn ratio(self) -> f64 {
        self.age / self.interval.max(1.0)
    }
}

impl Means {
    /// These means without one limit.
    #[must_use]
    fn without(mut self, limit: Limit) -> Self {
        match limit {
            Limit::Hours => self.week.hours = self.week.hours.all_day(),
            Limit::Days => self.week.hours = self.week.hours.all_week(),
            Limit::Sleep => self.pause = 0.0,
            Limit::Share => self.most = 1.0,
            Limit::Slots => self.taken = 1.0,
            Limit::Load => self.calm = 1.0,
        }
        self
    }

    /// The seconds for a scrub that reads for a share of the time while clients work.
    pub fn seconds(&self, bytes: f64, objects: f64, share: f64) -> f64 {
        let reading = bytes / self.speed.bytes;
        // While clients work it takes longer by the rests.
        let pace = 1.0 - self.busy + self.busy * share;
        reading / pace.max(f64::MIN_POSITIVE) + objects * (self.speed.look + self.pause)
    }

    /// The share of the time for which contents must be read, for all scrubs to end in time: infinite
    /// if that can't be.
    fn needed(&self, tasks: &mut [Task]) -> f64 {
        let left = |t: &Task| t.interval - t.age;
        tasks.sort_by(|a, b| left(a).total_cmp(&left(b)));
        let (mut reading, mut other, mut most) = (0.0, 0.0, 0.0_f64);
        // Until each deadline there is time for all scrubs with an earlier one.
        for task in &*tasks {
            reading += task.bytes / self.speed.bytes;
            other += task.objects * (self.speed.look + self.pause);
            let time = self.week.open_within(left(task)) - other;
            most = most.max(match reading > 0.0 {
                true if time > 0.0 => reading / time,
                true => f64::INFINITY,
                false => 0.0,
            });
        }
        most
    }

    /// The share of its time that the OSD is to read while clients work.
    pub fn share(&self, tasks: &mut [Task]) -> f64 {
        let wanted = self.needed(tasks) * MARGIN;
        wanted.clamp(LEAST_SHARE.min(self.most), self.most)
    }

    /// When the scrub that comes latest will end, if the OSD gives all the time that it may. Nothing is
    /// late if there is nothing to do.
    pub fn end(&self, tasks: &mut [Task]) -> End {
        let begins = |t: &Task| t.due - t.age;
        tasks.sort_by(|a, b| begins(a).total_cmp(&begins(b)));
        let mut at = 0.0_f64;
        let mut last = End {
            age: 0.0,
            interval: 0.0,
        };
        // The longest due goes first, as they do.
        for task in &*tasks {
            let work = self.seconds(task.bytes, task.objects, self.most) / self.taken;
            let from = at.max(begins(task));
            let done = |from: f64, work: f64| from + self.week.after(from).until_done(work);
            at = done(from, work / self.calm);
            if self.calm < 1.0 && task.free_in.is_finite() {
                at = at.min(done(from.max(task.free_in), work));
            }
            let end = End {
                age: task.age + at,
                interval: task.interval,
            };
            if end.ratio() > last.ratio() {
                last = end;
            }
            if at.is_infinite() {
                break; // So are all others.
            }
        }
        last
    }

    /// When that scrub would end without each limit.
    pub fn ends_without(&self, tasks: &mut [Task]) -> Vec<(Limit, End)> {
        let of = |limit: Limit| (limit, self.without(limit).end(tasks));
        Limit::ALL.into_iter().map(of).collect()
    }

    /// When that scrub would end without any limit.
    pub fn end_at_best(&self, tasks: &mut [Task]) -> End {
        let free = Limit::ALL.into_iter().fold(*self, Self::without);
        free.end(tasks)
    }
}

/// How many times as long as it reads an OSD rests that reads for a share of its time.
pub fn rest(share: f64) -> u32 {
    (1.0 / share - 1.0).round().clamp(0.0, 1000.0) as u32
}

#[cfg(test)]
mod tests {
    use super::super::hours::Hours;
    use super::*;

    const DAY: f64 = 86_400.0;
    const TB: f64 = 1e12;

    /// A disk with 100 PGs, whose contents were read one after the other in the last `days`.
    fn disk(bytes: f64, days: f64) -> Vec<Task> {
        let task = |i: u32| Task {
            age: days * DAY * f64::from(i) / 100.0,
            due: 6.5 * DAY,
            interval: 7.0 * DAY,
            free_in: f64::INFINITY,
            bytes: bytes / 100.0,
            objects: bytes / 100.0 / 4e6,
        };
        (0..100).map(task).collect()
    }

    fn means() -> Means {
        Means {
            speed: Speed {
                bytes: 100e6,
                look: 0.0,
            },
            week: Week::default(),
            most: 0.1,
            pause: 0.0,
            busy: 1.0,
            taken: 1.0,
            calm: 1.0,
        }
    }

    fn at_night() -> Week {
        Week {
            hours: Hours::new((22, 6), (0, 0)),
            at: 12.0 * 3600.0,
        }
    }

    fn percent(means: &Means, bytes: f64) -> f64 {
        (means.share(&mut disk(bytes, 7.0)) * 1000.0).round() / 10.0
    }

    #[test]
    fn the_share_is_what_is_needed_and_half_more() {
        // 4 TB are 40,000 s of reading, 1 TB a quarter of that, and a week has 604,800.
        assert_eq!((percent(&means(), 4.0 * TB), percent(&means(), TB)), (9.9, 2.5));
        // Of what was never read for long everything is needed at once.
        assert_eq!(means().share(&mut disk(TB, 8.0)), 0.1);
        let freshly_read = means().share(&mut disk(4.0 * TB, 0.0));
        assert!((0.099..0.1).contains(&freshly_read), "{freshly_read}");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        assert_eq!(percent(&means(), 8.0 * TB), 10.0);
        assert_eq!((percent(&means(), 0.0), means().share(&mut [])), (2.0, 0.02));
        let with = |most: f64| Means { most, ..means() };
        assert_eq!(
            (percent(&with(0.5), 8.0 * TB), percent(&with(0.01), TB)),
            (19.8, 1.0)
        );
        assert_eq!((rest(0.1), rest(0.02), rest(1.0), rest(1e-9)), (9, 49, 0, 1000));
    }

    #[test]
    fn fewer_hours_take_a_larger_share_of_them() {
        let night = Means {
            week: at_night(),
            most: 1.0,
            ..means()
        };
        let share = night.share(&mut disk(TB, 0.0));
        assert!((0.074..0.075).contains(&share), "{share}");
        // Of a PG that was last read a week ago nothing can be read before the evening.
        assert_eq!(night.share(&mut disk(TB, 7.0)), 1.0);
        // Nothing can be read in time where nothing is permitted.
        let never = Means {
            week: Week {
                hours: Hours::new((0, 0), (7, 8)),
                at: 0.0,
            },
            ..means()
        };
        assert_eq!(percent(&never, TB), 10.0);
    }

    #[test]
    fn small_objects_and_pauses_take_time_beside_reading() {
        let slow = Means {
            speed: Speed {
                bytes: 100e6,
                look: 1.0,
            },
            ..means()
        };
        // 250,000 objects take 250,000 s of the week.
        assert_eq!(percent(&slow, TB), 4.2);
        let paused = Means { pause: 3.0, ..slow };
        assert_eq!(percent(&paused, TB), 10.0, "there is no time left");
    }

    fn late_by(means: &Means, bytes: f64) -> f64 {
        let end = means.end(&mut disk(bytes, 7.0));
        ((end.age - end.interval) / DAY * 10.0).round().max(0.0) / 10.0
    }

    #[test]
    fn what_ends_when_follows_from_the_largest_share() {
        // At a tenth 4 TB take 4.6 days: they keep up.
        assert_eq!(late_by(&means(), 4.0 * TB), 0.0);
        // 16 TB take 18.5 days.
        assert_eq!(late_by(&means(), 16.0 * TB), 11.5);
        let idle = |busy: f64| Means { busy, ..means() };
        assert_eq!(late_by(&idle(0.3), 16.0 * TB), 0.0, "clients rest, too");
        assert_eq!(means().end(&mut []).ratio(), 0.0);
        let taken = Means {
            taken: 0.25,
            ..means()
        };
        assert_eq!(late_by(&taken, 4.0 * TB), 11.5);
    }

    #[test]
    fn load_keeps_scrubs_from_beginning_until_they_are_late() {
        let loaded = Means { calm: 0.0, ..means() };
        let mut tasks = disk(TB, 7.0);
        assert!(loaded.end(&mut tasks).age.is_infinite());
        tasks.iter_mut().for_each(|t| t.free_in = 10.0 * DAY - t.age);
        let end = loaded.end(&mut tasks);
        assert!((9.9 * DAY..10.5 * DAY).contains(&end.age), "{end:?}");
    }

    #[test]
    fn it_is_known_what_would_help() {
        let mut tasks = disk(4.0 * TB, 7.0);
        let limited = Means {
            week: at_night(),
            ..means()
        };
        let is_in_time = |end: End| end.ratio() <= 1.75;
        let help = |means: &Means, tasks: &mut [Task]| {
            let ends = means.ends_without(tasks).into_iter();
            ends.filter(|(_, end)| is_in_time(*end))
                .map(|(limit, _)| limit)
                .collect::<Vec<_>>()
        };
        assert!(!is_in_time(limited.end(&mut tasks)));
        assert_eq!(help(&limited, &mut tasks), [Limit::Hours, Limit::Share]);
        let paused = Means {
            pause: 2.0,
            ..means()
        };
        assert_eq!(help(&paused, &mut tasks), [Limit::Sleep]);
        // A disk that can't read its data in that time.
        let mut tasks = disk(200.0 * TB, 7.0);
        assert_eq!(help(&limited, &mut tasks), []);
        assert!(!is_in_time(limited.end_at_best(&mut tasks)));
    }
}
