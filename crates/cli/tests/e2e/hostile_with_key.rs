//! Hostile clients with a key: others are served, and no daemon ends or outgrows its budget.

use std::time::Duration;

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, bystander, run};
use spirula_maps::OsdId;

#[test]
fn a_raw_client_logs_in_and_reaches_every_daemon() {
    let c = Cluster::up("rawclient", 3, &[]);
    c.sh(
        "ceph osd pool create r 8 8 replicated; ceph osd pool application enable r test; \
          ceph auth get-or-create client.raw mon 'allow r' osd 'allow rw pool=r' >/dev/null",
    );
    let other = bystander(&c, "r", 10, Duration::from_secs(1));
    run(async {
        let raw = RawClient::login(&c, "client.raw").await;
        for osd in 0..3 {
            assert_eq!(
                raw.osd(OsdId::new(osd)).await.unwrap().peer().kind(),
                spirula_denc::EntityType::OSD
            );
        }
        raw.monitor().await.unwrap();
    });
    other.join().unwrap();
}
