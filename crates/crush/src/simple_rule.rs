//! Rules as `ceph osd crush rule create-*` makes them.

use crate::map::is_valid_name;
use crate::{CrushMap, Error, Op, RULE_REPLICATED, Result, Rule, Step};

/// How a rule treats positions that can't be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleMode {
    /// Later devices move up: replicated pools.
    Firstn,
    /// The position stays a hole: erasure-coded pools, whose positions are shards.
    Indep,
}

impl RuleMode {
    /// The mode with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "firstn" => Some(Self::Firstn),
            "indep" => Some(Self::Indep),
            _ => None,
        }
    }
}

/// A rule that spreads data over the buckets of one type below a root.
#[derive(Debug, Clone)]
pub struct SimpleRule<'a> {
    /// The new rule's name.
    pub name: &'a str,
    /// The bucket to take from.
    pub root: &'a str,
    /// The type that no two copies may share; empty for the devices themselves.
    pub failure_domain: &'a str,
    /// Only devices of this class.
    pub device_class: Option<&'a str>,
    /// How holes are treated.
    pub mode: RuleMode,
    /// [`crate::RULE_REPLICATED`] or [`crate::RULE_ERASURE`].
    pub rule_type: u8,
    /// The rule's number; `None` for the first free one.
    pub number: Option<u32>,
}

/// Rule numbers are one byte in pools of old and in the rule's own encoding.
const MAX_RULES: u32 = 256;

impl CrushMap {
    /// Adds a rule and returns its number. For an erasure code, [`CrushMap::set_rule_max_size`]
    /// sets the number of chunks afterwards.
    ///
    /// # Errors
    /// Where the name or number is taken, or the root, type or class does not exist.
    pub fn add_simple_rule(&mut self, new: &SimpleRule<'_>) -> Result<u32> {
        self.add_rule_of(new, |map| {
            let kind = match new.failure_domain {
                "" => 0,
                name => map
                    .type_id(name)
                    .ok_or_else(|| Error::UnknownType(name.to_owned()))?,
            };
            let choose = match (new.mode, kind) {
                (RuleMode::Firstn, 0) => Op::CHOOSE_FIRSTN,
                (RuleMode::Firstn, _) => Op::CHOOSELEAF_FIRSTN,
                (RuleMode::Indep, 0) => Op::CHOOSE_INDEP,
                (RuleMode::Indep, _) => Op::CHOOSELEAF_INDEP,
            };
            Ok(vec![Step::new(choose, 0, kind)])
        })
    }

    /// [`CrushMap::add_simple_rule`] with steps of its own instead of one that chooses from the
    /// failure domain.
    ///
    /// # Errors
    /// Those of [`CrushMap::add_simple_rule`] and of `choose`.
    pub fn add_rule_of(
        &mut self,
        new: &SimpleRule<'_>,
        choose: impl FnOnce(&Self) -> Result<Vec<Step>>,
    ) -> Result<u32> {
        if !is_valid_name(new.name) {
            return Err(Error::InvalidName(new.name.to_owned()));
        }
        if self.rule_id(new.name).is_some() || new.number.is_some_and(|n| self.rule(n).is_some()) {
            return Err(Error::RuleExists(new.name.to_owned()));
        }
        let take = self.rule_root(new)?;
        let mut steps = Vec::with_capacity(5);
        if new.mode == RuleMode::Indep {
            steps.push(Step::new(Op::SET_CHOOSELEAF_TRIES, 5, 0));
            steps.push(Step::new(Op::SET_CHOOSE_TRIES, 100, 0));
        }
        steps.push(Step::new(Op::TAKE, take, 0));
        steps.extend(choose(self)?);
        steps.push(Step::new(Op::EMIT, 0, 0));
        let (min_size, max_size) = if new.mode == RuleMode::Firstn {
            (1, 10)
        } else {
            (3, 20)
        };
        let number = match new.number {
            Some(n) => n,
            None => self.free_rule_number(),
        };
        let ruleset = u8::try_from(number).map_err(|_| Error::TooManyRules)?;
        let rule = Rule {
            ruleset,
            rule_type: new.rule_type,
            min_size,
            max_size,
            steps,
        };
        self.put_rule(number, new.name, rule)?;
        Ok(number)
    }

    fn rule_root(&self, new: &SimpleRule<'_>) -> Result<i32> {
        let root = self
            .item_id(new.root)
            .ok_or_else(|| Error::NoSuchRoot(new.root.to_owned()))?;
        let Some(class) = new.device_class else {
            return Ok(root);
        };
        let id = self
            .class_id(class)
            .ok_or_else(|| Error::NoSuchClass(class.to_owned()))?;
        self.shadows
            .get(&root)
            .and_then(|by_class| by_class.get(&id))
            .copied()
            .ok_or_else(|| Error::NoDevicesOfClass {
                root: new.root.to_owned(),
                class: class.to_owned(),
            })
    }

    fn free_rule_number(&self) -> u32 {
        (0..).find(|n| self.rule(*n).is_none()).unwrap_or(MAX_RULES)
    }

    /// Stores a rule under a free number.
    ///
    /// # Errors
    /// [`Error::RuleExists`], [`Error::TooManyRules`].
    pub fn put_rule(&mut self, number: u32, name: &str, rule: Rule) -> Result<()> {
        if number >= MAX_RULES {
            return Err(Error::TooManyRules);
        }
        if self.rule(number).is_some() {
            return Err(Error::RuleExists(name.to_owned()));
        }
        let at = number as usize;
        if at >= self.rules.len() {
            self.rules.resize(at + 1, None);
        }
        self.rules[at] = Some(rule);
        self.rule_names.insert(number as i32, name.to_owned());
        Ok(())
    }

    /// Sets the largest pool size that a rule is for.
    ///
    /// # Errors
    /// [`Error::NoSuchRule`].
    pub fn set_rule_max_size(&mut self, number: u32, max_size: u8) -> Result<()> {
        let rule = self.rules.get_mut(number as usize).and_then(Option::as_mut);
        rule.ok_or(Error::NoSuchRule)?.max_size = max_size;
        Ok(())
    }

    /// Removes a rule, and the classes that only it kept alive.
    ///
    /// # Errors
    /// [`Error::NoSuchRule`].
    pub fn remove_rule(&mut self, number: u32) -> Result<()> {
        self.rule(number).ok_or(Error::NoSuchRule)?;
        self.edit(|map| {
            map.rules[number as usize] = None;
            map.rule_names.remove(&(number as i32));
            map.rebuild_shadows()
        })
    }

    /// Gives a rule another name.
    ///
    /// # Errors
    /// [`Error::NoSuchRule`], [`Error::RuleExists`], [`Error::InvalidName`].
    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<()> {
        if !is_valid_name(to) {
            return Err(Error::InvalidName(to.to_owned()));
        }
        if self.rule_id(to).is_some() {
            return Err(Error::RuleExists(to.to_owned()));
        }
        let number = self.rule_id(from).ok_or(Error::NoSuchRule)?;
        self.rule_names.insert(number as i32, to.to_owned());
        Ok(())
    }

    /// The map of a new cluster: an empty root `default`, and `replicated_rule` (number 0) over the
    /// failure domain.
    ///
    /// # Errors
    /// [`Error::UnknownType`].
    pub fn with_default_root(failure_domain: &str) -> Result<Self> {
        let mut map = CrushMap::new();
        map.add_bucket("default", "root", None)?;
        map.add_simple_rule(&SimpleRule {
            name: "replicated_rule",
            root: "default",
            // The devices' own type means no grouping at all.
            failure_domain: if failure_domain == "osd" {
                ""
            } else {
                failure_domain
            },
            device_class: None,
            mode: RuleMode::Firstn,
            rule_type: RULE_REPLICATED,
            number: None,
        })?;
        Ok(map)
    }
}
