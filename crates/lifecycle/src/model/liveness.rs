//! Whether everything comes to an end once nothing goes wrong any more.

use super::{Fleet, NOW, World, normal, store};

/// So many steps without a fault are as good as no end.
const MAX_DEPTH: usize = 500;

impl Fleet {
    /// Whether every task has ended or waits for a person.
    fn is_settled(&self, world: &World) -> bool {
        !world.damaged
            && (0..world.slots.len()).all(|at| {
                let task = &world.slots[at].task;
                let facts = || store::facts(world, at, None);
                task.state.is_terminal()
                    || crate::recovery::is_parked(&self.policy, task, &facts(), NOW)
            })
    }

    /// How many steps it takes at most, in whatever order the roles act, until every task
    /// has ended or is parked, if nothing goes wrong any more. None: it may go on
    /// forever, or stand still before that.
    pub(super) fn depth(&self, start: &World) -> Option<u32> {
        struct Frame {
            hash: u64,
            next: Vec<World>,
            depth: u32,
        }
        let open = |world: &World| -> Option<Frame> {
            let mut steps = Vec::new();
            self.plain_steps(world, &mut steps);
            let next: Vec<World> = steps
                .into_iter()
                .filter_map(|step| self.after(world, step))
                .collect();
            (!next.is_empty()).then(|| Frame {
                hash: normal::hash(world),
                next,
                depth: 0,
            })
        };
        let mut known = self
            .depths
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(depth) = known.get(&normal::hash(start)) {
            return *depth;
        }
        if self.is_settled(start) {
            return Some(0);
        }
        let mut stack = vec![open(start)?];
        known.insert(stack[0].hash, None);
        while let Some(frame) = stack.last_mut() {
            let Some(next) = frame.next.pop() else {
                let done = stack.pop()?;
                known.insert(done.hash, Some(done.depth));
                match stack.last_mut() {
                    Some(parent) => parent.depth = parent.depth.max(done.depth + 1),
                    None => return Some(done.depth),
                }
                continue;
            };
            if self.is_settled(&next) {
                frame.depth = frame.depth.max(1);
                continue;
            }
            match known.get(&normal::hash(&next)) {
                Some(Some(depth)) => frame.depth = frame.depth.max(depth + 1),
                // On the stack: a circle. Or found before to have no end.
                Some(None) => return None,
                // No end in sight.
                None if stack.len() >= MAX_DEPTH => return None,
                None => {
                    let inner = open(&next)?;
                    known.insert(inner.hash, None);
                    stack.push(inner);
                }
            }
        }
        None
    }

    pub(super) fn longest(&self) -> u32 {
        let known = self
            .depths
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        known.values().copied().flatten().max().unwrap_or(0)
    }
}
