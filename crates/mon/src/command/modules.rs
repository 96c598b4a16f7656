//! Which modules the manager has, and what those of Ceph answer that find nothing to tell of: no orchestrator, no file system, no
//! device whose health is known, nothing sent home.

use serde_json::{Value, json};

use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::Monitor;
use crate::core::manager::MODULES;
use crate::fmt::{Align, Format, Table};

commands! {
    "mgr module ls" "mgr" "r" ls, "list the manager's modules";
    "mgr module enable module:String force?:{--force}" "mgr" "rw" enable, "enable a module of the manager";
    "mgr module disable module:String" "mgr" "rw" disable, "disable a module of the manager";
    "orch set backend module_name?:String" "mgr" "rw" orch_backend, "choose the orchestrator";
    "fs status fs?:String" "mgr" "r" fs_status, "summarize the file systems";
    "device ls" "mgr" "r" device_ls, "list the devices whose health is known";
    "device ls-by-daemon who:String" "mgr" "r" device_ls_by_daemon, "list a daemon's devices whose health is known";
    "device ls-by-host host:String" "mgr" "r" device_ls_by_host, "list a host's devices whose health is known";
    "device info devid:String" "mgr" "r" device_info, "show what is known of a device";
    "telemetry status" "mgr" "r" telemetry_status, "show what is sent home: nothing";
    "telemetry off" "mgr" "rw" telemetry_off, "send nothing home";
}

/// All modules that there are can't be disabled.
fn ls(_: &mut Monitor, call: &Call<'_>) -> Done {
    let v = json!({"always_on_modules": MODULES, "enabled_modules": [], "disabled_modules": []});
    now(Reply::json(call.format.or_pretty(), &v))
}

fn enable(_: &mut Monitor, call: &Call<'_>) -> Done {
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

fn disable(_: &mut Monitor, call: &Call<'_>) -> Done {
    let module = call.args.str("module")?;
    if MODULES.contains(&module.as_str()) {
        let text = format!("module '{module}' cannot be disabled (always-on)");
        return refuse(errno::EINVAL, text);
    }
    now(Reply::status(format!("module '{module}' is already disabled")))
}

/// There is none, so only "none" can be chosen.
fn orch_backend(_: &mut Monitor, call: &Call<'_>) -> Done {
    match call.args.opt_str("module_name").unwrap_or_default() {
        name if name.is_empty() => now(Reply::default()),
        name => refuse(errno::EINVAL, format!("Module '{name}' not found")),
    }
}

fn fs_status(_: &mut Monitor, call: &Call<'_>) -> Done {
    if let Some(name) = call.args.opt_str("fs") {
        // The module returns its errno without a sign.
        return Err(Reply::error(
            -errno::EINVAL,
            format!("Invalid filesystem: {name}"),
        ));
    }
    match call.format.is_structured() {
        true => now(Reply::data(Format::Json.render(&json!({}))).with_newline()),
        false => now(Reply::text("\n")),
    }
}

fn no_devices(call: &Call<'_>, columns: &[&str]) -> Done {
    if call.format.is_structured() {
        return now(Reply::json(call.format, &Value::Array(Vec::new())));
    }
    let columns: Vec<(&str, Align, Align)> = columns.iter().map(|c| (*c, Align::Left, Align::Left)).collect();
    now(Reply::text(Table::new(&columns).render()))
}

fn device_ls(_: &mut Monitor, call: &Call<'_>) -> Done {
    no_devices(
        call,
        &["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"],
    )
}

fn device_ls_by_daemon(_: &mut Monitor, call: &Call<'_>) -> Done {
    let who = call.args.str("who")?;
    let is_daemon = who
        .split_once('.')
        .is_some_and(|(kind, id)| !id.is_empty() && ["mon", "mgr", "osd", "mds", "client"].contains(&kind));
    if !is_daemon {
        return refuse(errno::EINVAL, format!("{who} is not a valid daemon name"));
    }
    no_devices(call, &["DEVICE", "HOST:DEV", "EXPECTED FAILURE"])
}

fn device_ls_by_host(_: &mut Monitor, call: &Call<'_>) -> Done {
    no_devices(call, &["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"])
}

fn device_info(_: &mut Monitor, call: &Call<'_>) -> Done {
    let device = call.args.str("devid")?;
    refuse(errno::ENOENT, format!("device {device} not found"))
}

/// As Ceph's module answers that was never enabled.
fn telemetry_status(_: &mut Monitor, _: &Call<'_>) -> Done {
    let v = json!({
        "channel_basic": true, "channel_crash": true, "channel_device": true, "channel_ident": false, "contact": null,
        "description": null, "device_url": "https://telemetry.ceph.com/device", "enabled": false, "interval": 24,
        "last_opt_revision": 1, "last_upload": null, "leaderboard": false, "log_level": "", "log_to_cluster": false,
        "log_to_cluster_level": "info", "log_to_file": false, "organization": null, "proxy": null,
        "url": "https://telemetry.ceph.com/report",
    });
    now(Reply::data(Format::JsonPretty.render(&v)))
}

/// It is off already.
fn telemetry_off(_: &mut Monitor, _: &Call<'_>) -> Done {
    now(Reply::default())
}
