//! How fast work in the background goes on.

/// How fast a class of work goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many times as long as it works it rests while clients work.
    pub rest: f64,
    /// The steps in a second that are taken even while clients work; 0 for none.
    pub least: f64,
    /// The most steps in a second; 0 for any number.
    pub most: f64,
}

impl Rate {
    /// For work whose weight is this part of the clients'.
    pub const fn weighing(part: f64) -> Self {
        Self {
            rest: 1.0 / part,
            least: 0.0,
            most: 0.0,
        }
    }
}

/// The requests of each client in a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClientRate {
    /// So many begin before those of clients that had more; 0 for none.
    pub least: f64,
    /// The most that begin; 0 for any number.
    pub most: f64,
}

impl ClientRate {
    /// The part of one of so many reactors, among which a client's requests are spread.
    #[must_use]
    pub fn part(self, reactors: u32) -> Self {
        let reactors = f64::from(reactors.max(1));
        Self {
            least: self.least / reactors,
            most: self.most / reactors,
        }
    }
}
