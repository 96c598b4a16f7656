//! The manager's modules, and the answers of those of Ceph's that have nothing to report: no
//! orchestrator, no file system, no telemetry.

use serde_json::json;
use spirula_text::Format;

use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::Turn;
use crate::core::manager::MODULES;

commands! {
    "mgr module ls" "mgr" "r" ls, "list the manager's modules";
    "mgr module enable module:String force?:{--force}" "mgr" "rw" enable, "enable a module of the manager";
    "mgr module disable module:String" "mgr" "rw" disable, "disable a module of the manager";
    "orch set backend module_name?:String" "mgr" "rw" orch_backend, "choose the orchestrator";
    "fs status fs?:String" "mgr" "r" fs_status, "summarize the file systems";
    "telemetry status" "mgr" "r" telemetry_status, "show what is sent home: nothing";
    "telemetry off" "mgr" "rw" telemetry_off, "send nothing home";
}

/// None of the modules can be disabled.
fn ls(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let v = json!({"always_on_modules": MODULES, "enabled_modules": [], "disabled_modules": []});
    now(Reply::json(call.format.or_pretty(), &v))
}

fn enable(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let module = call.args.str("module")?;
    if MODULES.contains(&module.as_str()) {
        return now(Reply::status(format!(
            "module '{module}' is already enabled (always-on)"
        )));
    }
    let text = match call.args.opt_str("force") {
        None => format!("all mgr daemons do not support module '{module}', pass --force to force enablement"),
        Some(_) => format!("there is no module '{module}' here"),
    };
    refuse(errno::ENOENT, text)
}

fn disable(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let module = call.args.str("module")?;
    if MODULES.contains(&module.as_str()) {
        let text = format!("module '{module}' cannot be disabled (always-on)");
        return refuse(errno::EINVAL, text);
    }
    now(Reply::status(format!("module '{module}' is already disabled")))
}

/// There is no orchestrator, so only "none" can be chosen.
fn orch_backend(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    match call.args.opt_str("module_name").unwrap_or_default() {
        name if name.is_empty() => now(Reply::default()),
        name => refuse(errno::EINVAL, format!("Module '{name}' not found")),
    }
}

fn fs_status(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if let Some(name) = call.args.opt_str("fs") {
        return Err(Reply::error_without_sign(
            errno::EINVAL,
            format!("Invalid filesystem: {name}"),
        ));
    }
    match call.format.is_structured() {
        true => now(Reply::data(Format::Json.render(&json!({}))).with_newline()),
        false => now(Reply::text("\n")),
    }
}

/// As Ceph's module answers if it was never enabled.
fn telemetry_status(_: &mut Turn<'_>, _: &Call<'_>) -> Done {
    let v = json!({
        "channel_basic": true, "channel_crash": true, "channel_device": true, "channel_ident": false, "contact": null,
        "description": null, "device_url": "https://telemetry.ceph.com/device", "enabled": false, "interval": 24,
        "last_opt_revision": 1, "last_upload": null, "leaderboard": false, "log_level": "", "log_to_cluster": false,
        "log_to_cluster_level": "info", "log_to_file": false, "organization": null, "proxy": null,
        "url": "https://telemetry.ceph.com/report",
    });
    now(Reply::data(Format::JsonPretty.render(&v)))
}

/// Telemetry is off already.
fn telemetry_off(_: &mut Turn<'_>, _: &Call<'_>) -> Done {
    now(Reply::default())
}
