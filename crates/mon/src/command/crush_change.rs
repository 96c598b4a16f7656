//! Changes to the CRUSH hierarchy.

use spirula_crush::{CrushMap, Location, weight_from_f64};
use spirula_maps::OsdId;
use spirula_text::general;

use super::crush::{crush_error, edit, set_map};
use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd crush set prior_version?:Int" "osd" "rw" set_any, "replace the CRUSH map by that of -i FILE";
    "osd crush set id:OsdName weight:Float(0.0) args:String[A-Za-z0-9-_.=]..." "osd" "rw" set_any,
        "set an OSD's weight and place";
    "osd crush add id:OsdName weight:Float(0.0) args:String[A-Za-z0-9-_.=]..." "osd" "rw" add,
        "give an OSD a weight and place";
    "osd crush create-or-move id:OsdName weight:Float(0.0) args:String[A-Za-z0-9-_.=]..." "osd" "rw" create_or_move,
        "make sure that an OSD is at a place";
    "osd crush add-bucket name:String[A-Za-z0-9-_.] type:String args?:String[A-Za-z0-9-_.=]..." "osd" "rw" add_bucket,
        "create a bucket";
    "osd crush rename-bucket srcname:String[A-Za-z0-9-_.] dstname:String[A-Za-z0-9-_.]" "osd" "rw" rename,
        "rename a bucket";
    "osd crush move name:String[A-Za-z0-9-_.] args:String[A-Za-z0-9-_.=]..." "osd" "rw" move_item,
        "move an item to another place";
    "osd crush link name:String args:String[A-Za-z0-9-_.=]..." "osd" "rw" link, "put a bucket at another place too";
    "osd crush rm name:String[A-Za-z0-9-_.] ancestor?:String[A-Za-z0-9-_.]" "osd" "rw" rm, "remove an item";
    "osd crush remove name:String[A-Za-z0-9-_.] ancestor?:String[A-Za-z0-9-_.]" "osd" "rw" rm, "remove an item";
    "osd crush unlink name:String[A-Za-z0-9-_.] ancestor?:String[A-Za-z0-9-_.]" "osd" "rw" unlink,
        "take an item out of the hierarchy";
    "osd crush reweight name:String[A-Za-z0-9-_.] weight:Float(0.0)" "osd" "rw" reweight, "set an item's weight";
    "osd crush reweight-subtree name:String[A-Za-z0-9-_.] weight:Float(0.0)" "osd" "rw" reweight_subtree,
        "set the weight of all OSDs below an item";
    "osd crush reweight-all" "osd" "rw" reweight_all, "recompute the buckets' weights";
}

fn location(call: &Call<'_>) -> Result<Location, Reply> {
    let words = call.args.list("args");
    CrushMap::parse_location(words.iter().flat_map(|w| w.split(' ')).filter(|w| !w.is_empty()))
        .map_err(|e| crush_error(&e))
}

/// A location as messages print it: `{host=a,root=default}`.
fn show(loc: &Location) -> String {
    let parts: Vec<String> = loc.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", parts.join(","))
}

fn weight(call: &Call<'_>) -> Result<(u32, f64), Reply> {
    let w = call.args.float("weight")?;
    Ok((weight_from_f64(w).map_err(|e| crush_error(&e))?, w))
}

/// A command's OSD; the official refusals end differently.
fn osd_of(m: &View, call: &Call<'_>, then: &str) -> Result<OsdId, Reply> {
    let osd = call.args.osd("id")?;
    if m.state.osd.map.exists(osd) {
        return Ok(osd);
    }
    refuse(
        errno::ENOENT,
        format!("osd.{osd} does not exist{then} it before updating the crush map"),
    )
}

/// Two commands share the name: with an OSD, and with a map.
fn set_any(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.args.opt_str("id").is_none() {
        set_map(m, call)
    } else {
        place(m, call, "set")
    }
}

fn add(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    place(m, call, "add")
}

fn place(m: &mut Turn<'_>, call: &Call<'_>, verb: &str) -> Done {
    let osd = osd_of(m.view, call, ". Create")?;
    let ((w, text), loc) = (weight(call)?, location(call)?);
    let name = format!("osd.{osd}");
    if verb == "set" && !m.view.state.osd.map.crush.map().is_held(osd.item()) {
        return refuse(
            errno::ENOENT,
            format!(
                "unable to set item id {osd} name '{name}' weight {} at location {}: does not exist",
                general(text, 6),
                show(&loc)
            ),
        );
    }
    edit(m, |c| c.update_item(osd.item(), w, &name, &loc))?;
    committed(format!(
        "{verb} item id {osd} name '{name}' weight {} at location {} to crush map",
        general(text, 6),
        show(&loc)
    ))
}

fn create_or_move(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = osd_of(m.view, call, ".  create")?;
    let ((w, text), loc) = (weight(call)?, location(call)?);
    let name = format!("osd.{osd}");
    edit(m, |c| c.create_or_move_item(osd.item(), w, &name, &loc))?;
    committed(format!(
        "create-or-move updating item name '{name}' weight {} at location {} to crush map",
        general(text, 6),
        show(&loc)
    ))
}

fn add_bucket(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, kind) = (call.args.str("name")?, call.args.str("type")?);
    let loc = location(call)?;
    if m.view.state.osd.map.crush.map().item_id(&name).is_some() {
        return now(Reply::status(format!("bucket '{name}' already exists")));
    }
    if m.view.state.osd.map.crush.map().type_id(&kind).is_none() {
        return refuse(errno::EINVAL, format!("type '{kind}' does not exist"));
    }
    edit(m, |c| {
        let id = c.add_bucket(&name, &kind, None)?;
        if loc.is_empty() {
            Ok(())
        } else {
            c.move_bucket(id, &loc)
        }
    })?;
    let tail = if loc.is_empty() {
        " to crush map".to_owned()
    } else {
        format!(" to location {}", show(&loc))
    };
    committed(format!("added bucket {name} type {kind}{tail}"))
}

fn rename(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (from, to) = (call.args.str("srcname")?, call.args.str("dstname")?);
    let crush = m.view.state.osd.map.crush.map();
    match (crush.item_id(&from).is_some(), crush.item_id(&to).is_some()) {
        (false, true) => {
            return now(Reply::status(format!(
                "srcname = '{from}' does not exist and dstname = '{to}' already exists"
            )));
        }
        (false, false) => return refuse(errno::ENOENT, format!("srcname = '{from}' does not exist")),
        (true, true) => return refuse(errno::EEXIST, format!("dstname = '{to}' already exists")),
        (true, false) => {}
    }
    edit(m, |c| c.rename_item(&from, &to))?;
    committed(format!("renamed bucket {from} into {to}"))
}

fn item(m: &View, name: &str) -> Result<i32, Reply> {
    let missing = || Reply::error(errno::ENOENT, format!("item {name} does not exist"));
    m.state.osd.map.crush.map().item_id(name).ok_or_else(missing)
}

fn move_item(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let loc = location(call)?;
    let id = item(m.view, &name)?;
    if m.view.state.osd.map.crush.map().weight_at(id, &loc).is_some() {
        return now(Reply::status(format!(
            "no need to move item id {id} name '{name}' to location {} in crush map",
            show(&loc)
        )));
    }
    edit(m, |c| {
        if id >= 0 {
            c.create_or_move_item(id, 0, &name, &loc).map(drop)
        } else {
            c.move_bucket(id, &loc)
        }
    })
    .map_err(|r| {
        let text = errno::Errno::of_result(r.code).map(|e| e.to_string());
        r.with_status(text.unwrap_or_default())
    })?;
    committed(format!(
        "moved item id {id} name '{name}' to location {} in crush map",
        show(&loc)
    ))
}

fn link(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let loc = location(call)?;
    let id = item(m.view, &name)?;
    if m.view.state.osd.map.crush.map().weight_at(id, &loc).is_some() {
        return now(Reply::status(format!(
            "no need to move item id {id} name '{name}' to location {} in crush map",
            show(&loc)
        )));
    }
    edit(m, |c| c.link_bucket(id, &loc)).map_err(|r| {
        let text = format!(
            "cannot link item id {id} name '{name}' to location {}",
            show(&loc)
        );
        r.with_status(text)
    })?;
    committed(format!(
        "linked item id {id} name '{name}' to location {} in crush map",
        show(&loc)
    ))
}

fn remove(m: &mut Turn<'_>, call: &Call<'_>, unlink_only: bool) -> Done {
    let name = call.args.str("name")?;
    let Some(id) = m.view.state.osd.map.crush.map().item_id(&name) else {
        return now(Reply::status(format!(
            "device '{name}' does not appear in the crush map"
        )));
    };
    let ancestor = match call.args.opt_str("ancestor") {
        Some(a) => {
            let known = m.view.state.osd.map.crush.map().item_id(&a);
            let missing = || {
                let text = format!("ancestor item '{a}' does not appear in the crush map");
                Reply::error(errno::ENOENT, text)
            };
            Some(known.ok_or_else(missing)?)
        }
        None => None,
    };
    let edited = edit(m, |c| match ancestor {
        Some(a) => c.remove_item_under(id, a, unlink_only),
        None => c.remove_item(id, unlink_only),
    });
    match edited {
        Err(r) if r.code == -errno::ENOENT => {
            return now(Reply::status(format!(
                "item {id} does not appear in that position"
            )));
        }
        other => other?,
    }
    committed(format!("removed item id {id} name '{name}' from crush map"))
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    remove(m, call, false)
}

fn unlink(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    remove(m, call, true)
}

/// The item of this name, whose weight is to change; Ceph's refusal calls any unknown item a
/// device.
fn weighted(v: &View, name: &str) -> Result<i32, Reply> {
    let item = v.state.osd.map.crush.map().item_id(name);
    item.ok_or_else(|| {
        let text = format!("device '{name}' does not appear in the crush map");
        Reply::error(errno::ENOENT, text)
    })
}

fn reweight(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let (w, text) = weight(call)?;
    let id = weighted(m.view, &name)?;
    if id < 0 {
        return refuse(
            errno::EINVAL,
            format!("device '{name}' is not a leaf in the crush map"),
        );
    }
    edit(m, |c| c.adjust_item_weight(id, w))?;
    committed(format!(
        "reweighted item id {id} name '{name}' to {} in crush map",
        general(text, 6)
    ))
}

fn reweight_subtree(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let (w, text) = weight(call)?;
    let id = weighted(m.view, &name)?;
    if id >= 0 {
        return refuse(
            errno::EINVAL,
            format!("device '{name}' is not a subtree in the crush map"),
        );
    }
    edit(m, |c| c.adjust_subtree_weight(id, w))?;
    committed(format!(
        "reweighted subtree id {id} name '{name}' to {} in crush map",
        general(text, 6)
    ))
}

fn reweight_all(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    edit(m, CrushMap::reweight_all)?;
    committed("reweighted crush hierarchy")
}
