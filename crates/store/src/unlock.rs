//! Puts the cipher between a store and its devices, and changes the keys that open it. See
//! FORMAT.md, "Encryption".

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::crypt::{DataKey, EncryptionKey, Part};
use crate::device::{BlockIo, Device, EncryptedDevice, EncryptedIo, FileIo};
use crate::layout::{CLEAR, LOG_CLEAR, MAX_SLOTS, Superblock};
use crate::open::Devices;
use crate::{KeyProblem, Result, StoreError};

/// The main device and the log's own one, deciphered.
pub type Unlocked = (Arc<dyn BlockIo>, Option<Arc<dyn BlockIo>>);

fn failed(e: io::Error) -> StoreError {
    StoreError::io("set up the cipher", e)
}

fn problem(sb: &Superblock, problem: KeyProblem) -> StoreError {
    StoreError::Key {
        osd: sb.whoami,
        problem,
    }
}

/// The data key, and the number of the slot that `key` opens.
fn open_slot(sb: &Superblock, key: &EncryptionKey) -> Result<(usize, DataKey)> {
    let slots = sb.slots.as_ref();
    let slots = slots.ok_or_else(|| problem(sb, KeyProblem::NotEncrypted))?;
    for (i, slot) in slots.iter().enumerate() {
        if let Some(data) = DataKey::unwrap(slot, key, &sb.identity())? {
            return Ok((i, data));
        }
    }
    Err(problem(sb, KeyProblem::Wrong))
}

/// The data key of a store; `None` if it is not encrypted and no key was given.
fn data_key(sb: &Superblock, key: Option<&EncryptionKey>) -> Result<Option<DataKey>> {
    match key {
        Some(key) => open_slot(sb, key).map(|(_, data)| Some(data)),
        None if sb.is_encrypted() => Err(problem(sb, KeyProblem::Missing)),
        None => Ok(None),
    }
}

fn wrap(dev: Arc<dyn BlockIo>, data: &DataKey, part: Part) -> Result<Arc<dyn BlockIo>> {
    let io = EncryptedIo::new(dev, &data.blocks(part)?, clear(part));
    Ok(Arc::new(io.map_err(failed)?))
}

fn wrap_device(dev: Box<dyn Device>, data: &DataKey, part: Part) -> Result<Box<dyn Device>> {
    let device = EncryptedDevice::new(dev, &data.blocks(part)?, clear(part));
    Ok(Box::new(device.map_err(failed)?))
}

fn clear(part: Part) -> u64 {
    match part {
        Part::Main => CLEAR,
        Part::Log => LOG_CLEAR,
    }
}

/// The devices of a store, deciphered with `key` if it is encrypted.
///
/// # Errors
/// [`StoreError::Key`] if the key is missing, the wrong one, or one was given for a store that has
/// none; a device that holds no store.
pub fn unlock(
    dev: Arc<dyn BlockIo>,
    log: Option<Arc<dyn BlockIo>>,
    key: Option<&EncryptionKey>,
) -> Result<Unlocked> {
    let Some(data) = data_key(&Superblock::read(&dev)?, key)? else {
        return Ok((dev, log));
    };
    let log = log.map(|log| wrap(log, &data, Part::Log)).transpose()?;
    Ok((wrap(dev, &data, Part::Main)?, log))
}

impl Devices {
    /// As [`unlock`].
    ///
    /// # Errors
    /// As [`unlock`].
    pub fn unlock(self, key: Option<&EncryptionKey>) -> Result<Self> {
        let Some(data) = data_key(&Superblock::read(&self.main.blocking())?, key)? else {
            return Ok(self);
        };
        let log = self
            .log
            .map(|log| wrap_device(log, &data, Part::Log))
            .transpose()?;
        Ok(Self {
            main: wrap_device(self.main, &data, Part::Main)?,
            log,
        })
    }
}

/// Gives a new store a data key, which `key` opens, and returns its deciphered devices.
pub(crate) fn encrypt(
    sb: &mut Superblock,
    dev: &Arc<dyn BlockIo>,
    log: Option<&Arc<dyn BlockIo>>,
    key: &EncryptionKey,
) -> Result<Unlocked> {
    let data = DataKey::random()?;
    sb.slots = Some(vec![data.wrap(key, &sb.identity())?]);
    let log = log
        .map(|log| wrap(Arc::clone(log), &data, Part::Log))
        .transpose()?;
    Ok((wrap(Arc::clone(dev), &data, Part::Main)?, log))
}

/// The superblock of the store at `path`, which may be open meanwhile.
///
/// # Errors
/// A device that cannot be read or holds no store.
pub fn superblock(path: &Path) -> Result<Superblock> {
    let file =
        FileIo::open_read_only(path).map_err(|e| StoreError::io(format!("open {}", path.display()), e))?;
    Superblock::read(&(Arc::new(file) as Arc<dyn BlockIo>))
}

/// Changes the slots of the store at `path`, which must not be open. Both copies of the superblock
/// are written.
fn change_slots(path: &Path, change: impl FnOnce(&mut Superblock) -> Result<()>) -> Result<()> {
    let file = FileIo::open(path).map_err(|e| StoreError::io(format!("open {}", path.display()), e))?;
    let dev: Arc<dyn BlockIo> = Arc::new(file);
    let mut sb = Superblock::read(&dev)?;
    change(&mut sb)?;
    sb.count_mount()?;
    sb.write(&dev)
}

/// Lets `new`, beside `key`, open the store at `path`, which must not be in use. No data is
/// rewritten.
///
/// # Errors
/// [`StoreError::Key`], or an error of opening the store.
pub fn add_key(path: &Path, key: &EncryptionKey, new: &EncryptionKey) -> Result<()> {
    change_slots(path, |sb| {
        let (_, data) = open_slot(sb, key)?;
        let (identity, full) = (sb.identity(), problem(sb, KeyProblem::Full));
        match &mut sb.slots {
            Some(slots) if slots.len() < MAX_SLOTS => slots.push(data.wrap(new, &identity)?),
            _ => return Err(full),
        }
        Ok(())
    })
}

/// Makes `key` the only one that opens the store at `path`, which must not be in use.
///
/// # Errors
/// [`StoreError::Key`], or an error of opening the store.
pub fn retire_keys(path: &Path, key: &EncryptionKey) -> Result<()> {
    change_slots(path, |sb| {
        let (at, _) = open_slot(sb, key)?;
        if let Some(slots) = &mut sb.slots {
            *slots = vec![slots[at]];
        }
        Ok(())
    })
}
