//! The names of image features, and `rbd feature`.

use spirula_rbd::{Features, JournalOptions, Options};

use super::{Done, Tool, bad, close, complain, failed, invalid, size};
use crate::rbd::Exit;

/// Parses features: names separated by commas, or a number.
pub(super) fn parse(texts: &[String]) -> Option<Features> {
    let mut features = Features::empty();
    for name in texts.iter().flat_map(|t| t.split(',')) {
        let known = Features::from_name(name);
        features.insert(known.or_else(|| name.parse().ok().map(Features))?);
    }
    Some(features)
}

/// Allowed sizes of a journal's objects, as powers of two.
const JOURNAL_ORDERS: std::ops::RangeInclusive<u8> = 12..=26;

impl Tool {
    /// The options of a new journal.
    pub(super) fn journal_options(&self) -> Result<JournalOptions, Exit> {
        let (args, usual) = (&self.args, JournalOptions::default());
        if args.journal_splay_width == Some(0) {
            return Err(invalid("journal-splay-width"));
        }
        let order = match &args.journal_object_size {
            None => usual.order,
            Some(text) => {
                let bytes = size("journal-object-size", text, 1)?.checked_next_power_of_two();
                let order = bytes.and_then(|b| u8::try_from(b.trailing_zeros()).ok());
                let order = order.filter(|o| JOURNAL_ORDERS.contains(o));
                order.ok_or_else(|| invalid("journal-object-size"))?
            }
        };
        Ok(JournalOptions {
            order,
            splay_width: args.journal_splay_width.unwrap_or(usual.splay_width),
            pool: args.journal_pool.clone(),
        })
    }

    pub(super) async fn feature_update(&self, enable: bool) -> Done {
        let (target, rest) = self.image().await?;
        let target = target.without_snap()?;
        if rest.is_empty() {
            return Err(bad("at least one feature name must be specified"));
        }
        let wanted =
            parse(rest).ok_or_else(|| complain(Exit::USAGE, "the argument for option is invalid"))?;
        let options = self.journal_options()?;
        let image = target.open(Options::default()).await?;
        let updated = image.update_features(wanted, enable, &options).await;
        close(
            image,
            updated.map_err(|e| failed("failed to update image features", &e)),
        )
        .await
    }
}
