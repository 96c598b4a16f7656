//! Placement rules: small programs that the mapper runs.

/// A step's operation. An integer newtype, so that operations of later releases survive decoding
/// and encoding (the mapper ignores those it does not know, as the official one does).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(pub u32);

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Op {
            $($(#[$doc])* pub const $name: Op = Op($value);)*

            /// The operation's name in map texts; `None` for an unknown one.
            pub fn name(self) -> Option<&'static str> {
                match self { $(Op::$name => Some($text),)* _ => None }
            }
        }
    };
}

impl Op {
    /// The operation's name in `ceph osd crush dump`, which prints all others as bare numbers.
    pub fn dump_name(self) -> Option<&'static str> {
        self.name().filter(|_| self <= Op::SET_CHOOSELEAF_TRIES)
    }
}

ops! {
    /// Does nothing.
    NOOP = 0, "noop";
    /// Starts from item arg1.
    TAKE = 1, "take";
    /// Picks arg1 items of type arg2, without holes.
    CHOOSE_FIRSTN = 2, "choose_firstn";
    /// Picks arg1 items of type arg2; a position that can't be filled stays a hole.
    CHOOSE_INDEP = 3, "choose_indep";
    /// Appends the working set to the result.
    EMIT = 4, "emit";
    /// Picks arg1 items of type arg2 and a device under each, without holes.
    CHOOSELEAF_FIRSTN = 6, "chooseleaf_firstn";
    /// Picks arg1 items of type arg2 and a device under each, keeping positions.
    CHOOSELEAF_INDEP = 7, "chooseleaf_indep";
    /// Overrides the number of descents.
    SET_CHOOSE_TRIES = 8, "set_choose_tries";
    /// Overrides the number of inner descents.
    SET_CHOOSELEAF_TRIES = 9, "set_chooseleaf_tries";
    /// Overrides `choose_local_tries`.
    SET_CHOOSE_LOCAL_TRIES = 10, "set_choose_local_tries";
    /// Overrides `choose_local_fallback_tries`.
    SET_CHOOSE_LOCAL_FALLBACK_TRIES = 11, "set_choose_local_fallback_tries";
    /// Overrides `chooseleaf_vary_r`.
    SET_CHOOSELEAF_VARY_R = 12, "set_chooseleaf_vary_r";
    /// Overrides `chooseleaf_stable`.
    SET_CHOOSELEAF_STABLE = 13, "set_chooseleaf_stable";
}

/// One step of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// An item, a count or a value, by operation.
    pub arg1: i32,
    /// A bucket type for the choose operations, else 0.
    pub arg2: i32,
}

impl Step {
    /// A step.
    pub fn new(op: Op, arg1: i32, arg2: i32) -> Self {
        Self { op, arg1, arg2 }
    }
}

/// The pool type a rule is for (`pg_pool_t::TYPE_REPLICATED`).
pub const RULE_REPLICATED: u8 = 1;
/// The pool type a rule is for (`pg_pool_t::TYPE_ERASURE`).
pub const RULE_ERASURE: u8 = 3;

/// A placement rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Equal to the rule's number since Luminous; kept because it is encoded.
    pub ruleset: u8,
    /// The pool type: [`RULE_REPLICATED`] or [`RULE_ERASURE`].
    pub rule_type: u8,
    /// Smallest pool size the rule is meant for. Informational.
    pub min_size: u8,
    /// Largest pool size the rule is meant for. Informational.
    pub max_size: u8,
    /// The program.
    pub steps: Vec<Step>,
}

impl Rule {
    /// The items that `take` steps start from.
    pub fn takes(&self) -> impl Iterator<Item = i32> + '_ {
        self.steps.iter().filter(|s| s.op == Op::TAKE).map(|s| s.arg1)
    }

    /// Whether the rule has a step with one of the operations.
    pub fn uses(&self, ops: &[Op]) -> bool {
        self.steps.iter().any(|s| ops.contains(&s.op))
    }

    /// Whether the rule needs clients of feature `CRUSH_V2`: indep and retry steps.
    pub fn is_v2(&self) -> bool {
        self.uses(&[
            Op::CHOOSE_INDEP,
            Op::CHOOSELEAF_INDEP,
            Op::SET_CHOOSE_TRIES,
            Op::SET_CHOOSELEAF_TRIES,
        ])
    }

    /// Whether the rule needs clients of feature `CRUSH_TUNABLES3`.
    pub fn is_v3(&self) -> bool {
        self.uses(&[Op::SET_CHOOSELEAF_VARY_R])
    }

    /// Whether the rule needs clients of feature `CRUSH_TUNABLES5`.
    pub fn is_v5(&self) -> bool {
        self.uses(&[Op::SET_CHOOSELEAF_STABLE])
    }
}
