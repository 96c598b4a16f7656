//! `rbd perf image stats|counters`: the clients' I/O on block images, in the format of Ceph's
//! module `rbd_support`.

use std::collections::BTreeMap;

use spirula_maps::PoolId;
use spirula_text::python;

use super::{Call, Done, Reply, commands, denied_by_module, errno, now, rbd_support, refuse};
use crate::core::{Effect, Turn, View};
use crate::image_io::{DESCRIPTORS, Kind, Scope};

commands! {
    "rbd perf image stats pool_spec?:String sort_by?:{write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency}"
        "mgr" "r" stats, "show the rates at which clients use block images";
    "rbd perf image counters pool_spec?:String sort_by?:{write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency}"
        "mgr" "r" counters, "show how much clients have used block images since it was first asked";
}

fn stats(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    report(m, call, Kind::Stats)
}

fn counters(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    report(m, call, Kind::Counters)
}

/// A pool and a namespace in it, as `POOL[/NAMESPACE]`; `None` for all pools.
fn parse_spec(spec: &str) -> Result<Option<(&str, &str)>, Reply> {
    let invalid = || Reply::error(errno::EINVAL, format!("Invalid pool spec: {spec}"));
    match spec.split_once('/') {
        None if spec.is_empty() => Ok(None),
        None => Ok(Some((spec, ""))),
        Some((pool, nspace)) if pool.is_empty() || nspace.is_empty() || nspace.contains('/') => {
            Err(invalid())
        }
        Some(both) => Ok(Some(both)),
    }
}

/// The pools of block images.
fn image_pools(m: &View) -> BTreeMap<PoolId, String> {
    let pools = m.state.osd.map.pools_for(spirula_manager::IMAGES);
    let named = pools.map(|(id, name)| (id, name.to_owned()));
    named.collect()
}

fn authorize(m: &mut Turn<'_>, call: &Call<'_>, target: Option<(&str, &str)>) -> Result<(), Reply> {
    let (pool, namespace) = target.unwrap_or_default();
    if rbd_support::authority(m.view, call).allows(pool, namespace) {
        return Ok(());
    }
    // Python's spelling of absent values.
    let (pool, namespace) = target.unwrap_or(("None", "None"));
    let text = format!("not authorized on pool={pool}, namespace={namespace}");
    Err(denied_by_module(
        m,
        call.session,
        Reply::error(errno::EACCES, text),
    ))
}

fn report(m: &mut Turn<'_>, call: &Call<'_>, kind: Kind) -> Done {
    let spec = call.args.opt_str("pool_spec").unwrap_or_default();
    let target = parse_spec(&spec)?;
    authorize(m, call, target)?;
    let (scope, pools) = match target {
        None => (Scope::All, image_pools(m.view)),
        Some((pool, nspace)) => {
            let Some(id) = m.view.state.osd.map.pool_id(pool) else {
                let text = format!("[errno 2] RADOS object not found (Pool '{pool}' not found)");
                return refuse(errno::ENOENT, text);
            };
            (
                Scope::Pool(id, nspace.to_owned()),
                BTreeMap::from([(id, pool.to_owned())]),
            )
        }
    };
    m.effect(Effect::WatchImages(scope.clone()));
    let sort_by = call
        .args
        .opt_str("sort_by")
        .unwrap_or_else(|| DESCRIPTORS[0].to_owned());
    let Some(sort_by) = DESCRIPTORS.iter().position(|d| *d == sort_by) else {
        return refuse(errno::EINVAL, format!("'{sort_by}' is not in list"));
    };
    let report = m
        .view
        .image_io
        .report(&scope, kind, sort_by, &pools, m.view.now.sec);
    now(Reply::text(python::dumps(&report)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_named_with_or_without_a_namespace() {
        assert_eq!(parse_spec(""), Ok(None));
        assert_eq!(parse_spec("p"), Ok(Some(("p", ""))));
        assert_eq!(parse_spec("p/n"), Ok(Some(("p", "n"))));
        for bad in ["/", "/n", "p/", "p/n/i"] {
            let refusal = parse_spec(bad).unwrap_err();
            assert_eq!(refusal.code, -errno::EINVAL);
            assert_eq!(refusal.status, format!("Invalid pool spec: {bad}"));
        }
    }
}
