//! The admin socket's commands.

use std::rc::Rc;

use serde_json::{Map, Value};
use spirula_asok::{Answer, Command, Failure, Handler};

use super::shell::Shell;
use crate::{command, version};

/// Answers from the core.
pub(super) struct Admin(pub(super) Rc<Shell>);

impl Handler for Admin {
    fn commands(&self) -> &'static [Command] {
        command::DAEMON_COMMANDS
    }

    fn version(&self) -> Value {
        version::daemon()
    }

    async fn run(&self, prefix: &str, args: &Map<String, Value>) -> Result<Answer, Failure> {
        self.0
            .with_core(|core| command::daemon_command(&mut core.daemon(), prefix, args))
    }
}
