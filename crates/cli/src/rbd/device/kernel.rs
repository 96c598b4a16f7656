//! Kernel interfaces that no library covers: the keyring, and some ioctls of block devices.
//!
//! `unsafe` is for these calls, each with arguments that the kernel only reads and that live until
//! it returns.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::ioctl::{NoArg, Setter, ioctl};

/// `KEY_SPEC_PROCESS_KEYRING` of `linux/keyctl.h`: the keyring that ends with the process.
const PROCESS_KEYRING: libc::c_long = -2;
/// `BLKROSET` of `linux/fs.h`.
const SET_READ_ONLY: u32 = 0x125d;
/// `BLKRRPART` of `linux/fs.h`.
const READ_PARTITIONS: u32 = 0x125f;
/// `BLKFLSBUF` of `linux/fs.h`.
const FLUSH_BUFFERS: u32 = 0x1261;

/// Gives the kernel's Ceph client a key under a name; `secret` is the key as Ceph encodes it.
///
/// # Errors
/// `ENODEV` and `ENOSYS` where the kernel takes no such keys.
pub(super) fn add_key(name: &str, secret: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: two strings that end with a NUL, and bytes with their length; the kernel copies all
    // of them.
    let serial = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"ceph".as_ptr(),
            name.as_ptr(),
            secret.as_ptr(),
            secret.len(),
            PROCESS_KEYRING,
        )
    };
    match serial {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets whether a block device is read-only.
pub(super) fn set_read_only(device: &File, read_only: bool) -> io::Result<()> {
    // SAFETY: this ioctl takes a pointer to an integer, which it only reads.
    unsafe {
        ioctl(
            device,
            Setter::<SET_READ_ONLY, libc::c_int>::new(read_only.into()),
        )
    }?;
    Ok(())
}

/// Writes a block device's cached data, and drops the cache.
pub(super) fn flush_buffers(device: &File) -> io::Result<()> {
    // SAFETY: this ioctl takes no argument.
    unsafe { ioctl(device, NoArg::<FLUSH_BUFFERS>::new()) }?;
    Ok(())
}

/// Has the kernel look for partitions on a block device.
pub(super) fn read_partitions(device: &File) -> io::Result<()> {
    // SAFETY: this ioctl takes no argument.
    unsafe { ioctl(device, NoArg::<READ_PARTITIONS>::new()) }?;
    Ok(())
}

/// Loads a module of the kernel, unless the file `sign` shows that it is loaded.
///
/// # Errors
/// The message of `modprobe`.
pub(super) fn load_module(name: &str, parameters: &[String], sign: &Path) -> Result<(), String> {
    if sign.exists() {
        return Ok(());
    }
    // It is not in the path of every user.
    let path = "/usr/sbin:/sbin:/usr/bin:/bin";
    let ran = Command::new("modprobe")
        .arg(name)
        .args(parameters)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output();
    match ran {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => {
            // The last line is the shortest.
            let said = String::from_utf8_lossy(&ran.stderr);
            let last = said.lines().last().map(str::to_owned);
            Err(last.unwrap_or_else(|| format!("modprobe: {}", ran.status)))
        }
        Err(e) => Err(format!("modprobe: {e}")),
    }
}
