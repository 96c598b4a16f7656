//! A pool's snapshots of itself.

use spirula_maps::PoolId;

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd pool mksnap pool:Poolname snap:String" "osd" "rw" mksnap, "take a snapshot of a pool";
    "osd pool rmsnap pool:Poolname snap:String" "osd" "rw" rmsnap, "remove a snapshot of a pool";
}

/// The pool's name and id and the snapshot's name, if the pool may have snapshots of itself.
fn arguments(m: &View, call: &Call<'_>) -> Result<(String, PoolId, String), Reply> {
    let (name, snap) = (call.args.str("pool")?, call.args.str("snap")?);
    let id = m.state.osd.map.pool_id(&name);
    let Some((id, pool)) = id.and_then(|id| Some((id, m.state.osd.map.pool(id)?))) else {
        return refuse(errno::ENOENT, format!("unrecognized pool '{name}'"));
    };
    if pool.has_selfmanaged_snaps() {
        return refuse(errno::EINVAL, format!("pool {name} is in unmanaged snaps mode"));
    }
    Ok((name, id, snap))
}

fn mksnap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, snap) = arguments(m.view, call)?;
    if m.add_pool_snap(id, &snap) {
        committed(format!("created pool {name} snap {snap}"))
    } else {
        now(Reply::status(format!("pool {name} snap {snap} already exists")))
    }
}

fn rmsnap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id, snap) = arguments(m.view, call)?;
    if m.remove_pool_snap(id, &snap) {
        committed(format!("removed pool {name} snap {snap}"))
    } else {
        now(Reply::status(format!("pool {name} snap {snap} does not exist")))
    }
}
