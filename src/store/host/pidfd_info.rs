//! How the process of a pidfd ended, asked of the kernel by one that is not its parent.
//!
//! Theory of operation. Linux keeps the wait status of a process with its pidfd from the moment its parent
//! has reaped it (6.15 and later), for as long as somebody has the pidfd open from before. The call is an
//! `ioctl` for which no crate has a safe form, so this module holds the one unsafe block of the library:
//! `docs/design/006-one-unsafe-call.md` tells why it is worth it.
//!
//! What is sent is the first published form of the structure, 64 bytes, which every kernel that knows the
//! call takes; a longer one of a later kernel is cut by the kernel to the length that is in the number of
//! the call. The answer is believed only where its mask says that the kernel has filled the member in: an
//! older kernel leaves it alone, and so does each as long as the process is not reaped.
//!
//! A crash leaves nothing. Spec: RS-OBS-30.

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::RealHandle;

/// The bit that asks for the end, and says that it is there.
const EXIT: u64 = 1 << 3;

/// `struct pidfd_info` in its first form: plain numbers without a gap.
#[derive(Default)]
#[repr(C)]
struct Info {
    mask: u64,
    cgroup_id: u64,
    /// Three numbers of processes, eight of users and groups.
    ids: [u32; 11],
    exit_code: i32,
}

/// The length of the first form is a part of the number of the call.
const _: () = assert!(size_of::<Info>() == 64, "the first published form has 64 bytes");

/// `PIDFD_GET_INFO`.
const GET_INFO: Opcode = opcode::read_write::<Info>(0xff, 11);

/// The wait status of the process of a handle. `None` where the kernel does not tell it: the process has not
/// been reaped yet, the pidfd was opened too late, or the kernel is older.
pub(super) fn exit_status(handle: &RealHandle) -> rustix::io::Result<Option<i32>> {
    let mut info = Info { mask: EXIT, ..Info::default() };
    match get(handle, &mut info) {
        Ok(()) => Ok((info.mask & EXIT != 0).then_some(info.exit_code)),
        // In this order: a kernel without the call, with another form of it, without the member.
        Err(Errno::NOTTY | Errno::INVAL | Errno::SRCH) => Ok(None),
        Err(e) => Err(e),
    }
}

#[expect(unsafe_code, reason = "no crate has a safe form of this call; see the module's text")]
fn get(handle: &RealHandle, info: &mut Info) -> rustix::io::Result<()> {
    // SAFETY: a handle holds a descriptor that `pidfd_open` gave, and nothing else. For such a one the number
    // of the call names `struct pidfd_info` with the length of `Info`: the kernel reads and writes at most so
    // many bytes at the pointer, which `Updater` takes from an exclusive reference that lives until the call
    // returns. Every pattern of bits is a valid `Info`. A kernel without the call refuses the number.
    unsafe { ioctl(handle.pidfd(), Updater::<GET_INFO, Info>::new(info)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::host::{Host as _, ProcessHost as _, RealHost};

    #[test]
    fn a_process_that_runs_has_no_end_to_tell() {
        let host = RealHost::new();
        let own = host.hold(host.system().own_pid).expect("asked").expect("it is there");
        assert_eq!(exit_status(&own), Ok(None));
    }
}
