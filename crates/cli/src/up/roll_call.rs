//! Asks the monitors for the cluster's OSDs, and makes those that are missing here.

use std::time::Duration;

use spirula_maps::OsdId;

use super::census::{Here, Map, Verdict, judge};
use super::provision;
use crate::admin::Admin;
use crate::error::Error;
use crate::layout::{Layout, Spec};

/// How long to wait before monitors that do not answer are asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// The result for one OSD.
pub(super) struct Answer {
    pub(super) osd: OsdId,
    /// The decision about it, or why it could not be made.
    pub(super) verdict: Result<Verdict, Error>,
}

/// Asks until the monitors answer, and makes the OSDs that are missing.
pub(super) async fn roll_call(layout: Layout, spec: Spec) -> Vec<Answer> {
    let mut last = String::new();
    loop {
        match ask(&layout, &spec).await {
            Ok(answers) => return answers,
            Err(e) => {
                let why = e.to_string();
                if why != last {
                    tracing::warn!("the monitors can't be asked which OSDs there are: {why}");
                    last = why;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask(layout: &Layout, spec: &Spec) -> Result<Vec<Answer>, Error> {
    let admin = Admin::connect(layout).await?;
    let map = admin.osd_map().await?;
    let mut answers = Vec::new();
    for osd in spec.osds.iter().copied() {
        let verdict = make(layout, spec, &admin, &map, osd).await;
        answers.push(Answer { osd, verdict });
    }
    Ok(answers)
}

async fn make(layout: &Layout, spec: &Spec, admin: &Admin, map: &Map, osd: OsdId) -> Result<Verdict, Error> {
    let verdict = judge(map, osd, Here::look(layout, osd));
    if verdict == Verdict::Make {
        provision::osd::make(layout, spec, admin, osd).await?;
    }
    Ok(verdict)
}
