//! Commands of the manager's module for images. The module answers them.

use spirula_manager::{Authority, Question};

use super::{Call, Done, Outcome, commands, official};
use crate::core::{Turn, View};

commands! {
    "rbd mirror snapshot schedule add level_spec:String interval:String start_time?:String" "mgr" "w" ask,
        "have snapshots for mirroring made regularly";
    "rbd mirror snapshot schedule remove level_spec:String interval?:String start_time?:String" "mgr" "w" ask,
        "have snapshots for mirroring made no more";
    "rbd mirror snapshot schedule list level_spec?:String" "mgr" "r" ask, "list when snapshots for mirroring are made";
    "rbd mirror snapshot schedule status level_spec?:String" "mgr" "r" ask, "show the next snapshots for mirroring";
    "rbd trash purge schedule add level_spec:String interval:String start_time?:String" "mgr" "w" ask,
        "have the trash emptied regularly of what has expired";
    "rbd trash purge schedule remove level_spec:String interval?:String start_time?:String" "mgr" "w" ask,
        "have the trash emptied no more";
    "rbd trash purge schedule list level_spec?:String" "mgr" "r" ask, "list when the trash is emptied";
    "rbd trash purge schedule status level_spec?:String" "mgr" "r" ask, "show when the trash is emptied next";
    "rbd task add flatten image_spec:String" "mgr" "w" ask, "make a clone independent of its parent, in the background";
    "rbd task add remove image_spec:String" "mgr" "w" ask, "remove an image in the background";
    "rbd task add trash remove image_id_spec:String" "mgr" "w" ask, "remove an image from the trash in the background";
    "rbd task add migration execute image_spec:String" "mgr" "w" ask,
        "copy what a migrating image lacks from its source, in the background";
    "rbd task add migration commit image_spec:String" "mgr" "w" ask,
        "remove the source of a migrated image, in the background";
    "rbd task add migration abort image_spec:String" "mgr" "w" ask,
        "give the migration of an image up, in the background";
    "rbd task cancel task_id:String" "mgr" "r" ask, "give up a task";
    "rbd task list task_id?:String" "mgr" "r" ask, "list the tasks that are under way or wait";
}

/// The pool of a command that names none.
const DEFAULT_POOL: &str = "rbd";

/// The images that the sender of a command may touch. A sender that may run the command at the
/// monitors has no limits.
pub(super) fn authority(m: &View, call: &Call<'_>) -> Authority {
    let perm = official::find(call.args.prefix()).map_or("", |o| o.perm);
    match m.state.manager.sessions.get(&call.session) {
        Some(session) => Authority::Limited(Box::new(session.holder(perm))),
        None => Authority::All,
    }
}

fn ask(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let prefix = call.args.prefix().to_owned();
    let authority = authority(m.view, call);
    let mut values = m
        .view
        .state
        .config
        .for_daemon("mgr", &m.view.me.name, &m.view.me.hostname, "");
    let default_pool = values.remove("rbd_default_pool");
    Ok(Outcome::Ask(Box::new(Question {
        prefix,
        args: call.args.to_map(),
        authority,
        default_pool: default_pool.unwrap_or_else(|| DEFAULT_POOL.to_owned()),
    })))
}
