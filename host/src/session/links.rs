//! All connections of a session: one, or one for each core of a group.
//!
//! The first leads: its pinned buffer holds the group's fences, its architecture and limits are asked for. Every batch
//! goes to all of them, to the leader last, so that no member is waited for that has nothing to do yet.

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::{FenceRun, Link, SessionOptions, Shared, Slot};
use crate::error::{MapError, OpenError, SubmitError};
use crate::memory::Buffer;
use crate::transport::{HwInfo, SessionAt, Transport};

/// The connections of a session, its leader first; never empty.
pub(crate) struct Links {
    links: Vec<Link>,
    group: Option<Group>,
    epoch: u64,
}

/// What the members of a group meet at.
struct Group {
    /// A slot of the leader's pinned buffer for each member.
    barriers: FenceRun,
    /// Number that every barrier so far has passed.
    passed: Mutex<u32>,
}

/// The right to send one batch to all members: batches reach them all in the same order.
pub(crate) struct GroupBatch<'a> {
    _order: MutexGuard<'a, u32>,
    base_seq: u32,
}

impl GroupBatch<'_> {
    /// Number that all barriers of earlier batches have passed.
    pub(crate) fn base_seq(&self) -> u32 {
        self.base_seq
    }
}

impl Links {
    /// Opens a connection on every core that `options` name. On failure those that are open are shut down.
    pub(crate) fn open(transport: &dyn Transport, options: &SessionOptions, epoch: u64) -> Result<Self, OpenError> {
        let more = options.more_cores.iter().map(|&core| SessionAt { core, ..options.at });
        let links = std::iter::once(options.at).chain(more);
        let links: Vec<Link> = links
            .map(|at| Link::open(transport, options, at))
            .collect::<Result<_, _>>()?;
        if let Some(other) = links.iter().find(|link| !link.computes_as(&links[0])) {
            return Err(OpenError::UnlikeCores {
                at: other.at(),
                lead: options.at,
            });
        }
        let barriers = match links.len() {
            1 => None,
            n => Some(links[0].take_fences(n as u32).map_err(|_| OpenError::Option {
                option: "n_fences",
                value: options.n_fences.into(),
                allowed: format!("{n} or more, one for each core of the group"),
            })?),
        };
        let group = barriers.map(|barriers| Group {
            barriers,
            passed: Mutex::new(0),
        });
        Ok(Self { links, group, epoch })
    }

    /// Where the group's barrier slots lie; `None` for a single connection.
    pub(crate) fn group_place(&self) -> Option<(Buffer, u64)> {
        let barriers = &self.group.as_ref()?.barriers;
        Some((barriers.buffer().clone(), barriers.offset(0)))
    }

    /// Makes a batch of `n_ops` ops the next of the group; `None` for a single connection.
    pub(crate) fn next_in_group(&self, n_ops: usize) -> Option<GroupBatch<'_>> {
        let group = self.group.as_ref()?;
        let mut passed = group.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let base_seq = *passed;
        *passed = base_seq.wrapping_add(n_ops as u32);
        Some(GroupBatch {
            _order: passed,
            base_seq,
        })
    }

    /// Takes free queue slots for `n` batches, or none: for each batch one on every connection.
    pub(crate) fn take_slots(&self, n: usize) -> Result<Vec<Vec<Slot>>, SubmitError> {
        let mut batches: Vec<Vec<Slot>> = (0..n).map(|_| Vec::with_capacity(self.links.len())).collect();
        for link in &self.links {
            for (batch, slot) in batches.iter_mut().zip(link.take_slots(n)?) {
                batch.push(slot);
            }
        }
        Ok(batches)
    }

    /// Whether slots lie in the pinned buffers of these connections.
    pub(crate) fn own(&self, slots: &[Slot]) -> bool {
        slots.len() == self.links.len() && self.links.iter().zip(slots).all(|(link, slot)| link.owns(slot))
    }

    /// The connection that leads.
    pub(crate) fn lead(&self) -> &Link {
        &self.links[0]
    }

    /// All of them, the leader first.
    pub(crate) fn all(&self) -> &[Link] {
        &self.links
    }

    /// Whether batches go to more than one core.
    pub(crate) fn is_group(&self) -> bool {
        self.links.len() > 1
    }

    pub(crate) fn hw(&self) -> &HwInfo {
        self.lead().hw()
    }

    /// Bytes that one batch may need mapped: what the smallest window has for tensors.
    pub(crate) fn window_bytes(&self) -> u64 {
        let windows = self.links.iter().map(Link::window_bytes);
        windows.min().unwrap_or(0)
    }

    /// Rises with every re-opening, so that a prepared graph notices that its slots are gone.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes buffers known to every connection: those that are not yet, largest first, then by fd, then by place, so
    /// that every window is filled in the same order, large pieces before small ones.
    pub(crate) fn map<'a>(
        &self,
        session: &Weak<Shared>,
        buffers: impl Iterator<Item = &'a Buffer> + Clone,
    ) -> Result<(), MapError> {
        let mut missing: Vec<(&Buffer, &Link)> = Vec::new();
        for link in &self.links {
            missing.extend(
                buffers
                    .clone()
                    .filter(|buffer| link.lacks(buffer))
                    .map(|buffer| (buffer, link)),
            );
        }
        missing.sort_by_key(|(buffer, link)| (Reverse(buffer.memory().bytes()), buffer.fd(), link.at()));
        missing.dedup_by_key(|(buffer, link)| (buffer.fd(), link.at()));
        for (buffer, link) in missing {
            // Noted first: a mapping that nobody knows of would never be taken back.
            buffer.seen_by(session);
            link.map(buffer)?;
        }
        Ok(())
    }

    /// Takes a buffer's mappings back.
    pub(crate) fn unmap(&self, fd: u32) {
        self.links.iter().for_each(|link| link.unmap(fd));
    }

    /// Gives everything back, members before the leader.
    pub(crate) fn shut_down(&self) {
        self.links.iter().rev().for_each(Link::shut_down);
    }
}
