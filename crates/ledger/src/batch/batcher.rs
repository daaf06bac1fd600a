//! Callers who want the same kind of thing at the same time, served together.
//!
//! A statement costs a server more than most of what it says: callers who come while others
//! are being served wait in a line for each kind, and the longest line is served next, in
//! one go. The busier a process is, the less each caller costs. Nobody waits for others to join:
//! whoever comes when no call is under way is served at once.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How many are served in one go at most.
const MAX_BATCH: usize = 32;
/// How many lines are served at once: two would serve each other's callers one by one.
const MAX_SLOTS: usize = 1;
/// Whoever waited for so long is not passed over any more.
const MAX_WAIT: Duration = Duration::from_millis(20);

/// Who serves them: an answer for each question, in their order.
pub(crate) trait BatchHandler<K, Q, A>: Clone + Send + 'static {
    fn serve(self, kind: K, questions: Vec<Q>) -> impl Future<Output = Vec<A>> + Send;
}

/// Those who wait, by what they want.
pub(crate) struct Batcher<K, Q, A> {
    max_wait: Duration,
    state: Mutex<BatchState<K, Q, A>>,
}

struct BatchState<K, Q, A> {
    /// Nobody has an empty line.
    lines: HashMap<K, VecDeque<QueuedCall<Q, A>>>,
    /// The slots in which a batch is served, each with its number and since when.
    slots: Vec<(u64, Instant)>,
    next_slot: u64,
}

type QueuedCall<Q, A> = (Q, oneshot::Sender<A>);

impl<K, Q, A> BatchState<K, Q, A>
where
    K: Clone + Eq + Hash,
{
    fn join(&mut self, kind: K, question: Q) -> oneshot::Receiver<A> {
        let (tell, told) = oneshot::channel();
        let line = self.lines.entry(kind).or_default();
        line.push_back((question, tell));
        told
    }

    fn longest(&self) -> Option<K> {
        let longest = self.lines.iter().max_by_key(|(_, line)| line.len());
        longest.map(|(kind, _)| kind.clone())
    }

    /// The first of a line. Whoever went away wants nothing any more.
    fn take(&mut self, kind: &K) -> Vec<QueuedCall<Q, A>> {
        let Some(line) = self.lines.get_mut(kind) else {
            return Vec::new();
        };
        line.retain(|(_, tell)| !tell.is_closed());
        let first = line.drain(..line.len().min(MAX_BATCH)).collect();
        if line.is_empty() {
            self.lines.remove(kind);
        }
        first
    }
}

impl<K, Q, A> Batcher<K, Q, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    Q: Send + 'static,
    A: Send + 'static,
{
    pub(crate) fn new() -> Arc<Batcher<K, Q, A>> {
        Batcher::with_max_wait(MAX_WAIT)
    }

    fn with_max_wait(max_wait: Duration) -> Arc<Batcher<K, Q, A>> {
        Arc::new(Batcher {
            max_wait,
            state: Mutex::new(BatchState {
                lines: HashMap::new(),
                slots: Vec::new(),
                next_slot: 0,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, BatchState<K, Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer; none if everything ends before it is there.
    pub(crate) async fn ask<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        kind: K,
        question: Q,
        handler: &H,
    ) -> Option<A> {
        let (slot, question) = match self.take_slot_or_queue(&kind, question, handler) {
            Ok(taken) => taken,
            Err(told) => return self.wait(&kind, told, handler).await,
        };
        // Those who were answered together come together: let them.
        tokio::task::yield_now().await;
        if !self.state().lines.is_empty() {
            let told = self.state().join(kind.clone(), question);
            drop(slot);
            return self.wait(&kind, told, handler).await;
        }
        let answers = handler.clone().serve(kind, vec![question]).await;
        drop(slot);
        answers.into_iter().next()
    }

    /// A slot for the question, or where its answer will arrive.
    fn take_slot_or_queue<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        kind: &K,
        question: Q,
        handler: &H,
    ) -> Result<HeldSlot<K, Q, A, H>, oneshot::Receiver<A>> {
        let mut state = self.state();
        match self.take_slot(&mut state, handler, false) {
            Some(slot) => Ok((slot, question)),
            None => Err(state.join(kind.clone(), question)),
        }
    }

    /// One that is free; whoever must not wait any longer gets one in any case. Where
    /// somebody has been served for too long, nobody waits for the end of it.
    fn take_slot<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        state: &mut BatchState<K, Q, A>,
        handler: &H,
        in_any_case: bool,
    ) -> Option<BatchSlot<K, Q, A, H>> {
        let now = Instant::now();
        let lasts = |since: Instant| now.saturating_duration_since(since) < self.max_wait;
        let busy = state.slots.iter().filter(|(_, since)| lasts(*since));
        if busy.count() >= MAX_SLOTS && !in_any_case {
            return None;
        }
        state.next_slot += 1;
        state.slots.push((state.next_slot, now));
        Some(BatchSlot {
            batcher: Arc::clone(self),
            handler: handler.clone(),
            number: state.next_slot,
            begins: false,
        })
    }

    async fn wait<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        kind: &K,
        mut told: oneshot::Receiver<A>,
        handler: &H,
    ) -> Option<A> {
        loop {
            if let Ok(answer) = tokio::time::timeout(self.max_wait, &mut told).await {
                return answer.ok();
            }
            // Longer lines were served all the time, or nobody comes to an end.
            let mut state = self.state();
            if !state.lines.contains_key(kind) {
                break;
            }
            let slot = self.take_slot(&mut state, handler, true);
            drop(state);
            if let Some(slot) = slot {
                slot.begin(Some(kind.clone()));
            }
        }
        told.await.ok()
    }

    /// Those who are served next: of this line, or else of the longest.
    fn next(&self, kind: Option<K>) -> Option<(K, Vec<QueuedCall<Q, A>>)> {
        let mut state = self.state();
        let kind = kind.or_else(|| state.longest())?;
        let queued = state.take(&kind);
        (!queued.is_empty()).then_some((kind, queued))
    }
}

/// Where one line is served at a time. When it is free, however that comes, the longest is
/// next.
struct BatchSlot<K, Q, A, H>
where
    K: Clone + Eq + Hash + Send + 'static,
    Q: Send + 'static,
    A: Send + 'static,
    H: BatchHandler<K, Q, A>,
{
    batcher: Arc<Batcher<K, Q, A>>,
    handler: H,
    number: u64,
    /// Whether somebody is about to be served.
    begins: bool,
}

/// Somebody who is served at once.
type HeldSlot<K, Q, A, H> = (BatchSlot<K, Q, A, H>, Q);

impl<K, Q, A, H> BatchSlot<K, Q, A, H>
where
    K: Clone + Eq + Hash + Send + 'static,
    Q: Send + 'static,
    A: Send + 'static,
    H: BatchHandler<K, Q, A>,
{
    /// Serves this line, or else the longest. Nobody has to wait for that: whoever does may
    /// go away.
    fn begin(mut self, kind: Option<K>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        self.begins = true;
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            self.begins = false;
            let Some((kind, queued)) = self.batcher.next(kind) else {
                return;
            };
            let (questions, tell): (Vec<_>, Vec<_>) = queued.into_iter().unzip();
            let answers = self.handler.clone().serve(kind, questions).await;
            for (tell, answer) in tell.into_iter().zip(answers) {
                // Whoever asked may be gone.
                tell.send(answer).ok();
            }
        });
    }
}

impl<K, Q, A, H> Drop for BatchSlot<K, Q, A, H>
where
    K: Clone + Eq + Hash + Send + 'static,
    Q: Send + 'static,
    A: Send + 'static,
    H: BatchHandler<K, Q, A>,
{
    fn drop(&mut self) {
        let mut state = self.batcher.state();
        state.slots.retain(|(number, _)| *number != self.number);
        if self.begins || tokio::runtime::Handle::try_current().is_err() {
            // The runtime ends, and with it those who wait.
            let lines = std::mem::take(&mut state.lines);
            drop(state);
            drop(lines);
            return;
        }
        if state.lines.is_empty() {
            return;
        }
        let slot = self.batcher.take_slot(&mut state, &self.handler, false);
        drop(state);
        if let Some(slot) = slot {
            slot.begin(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// Answers with how many were served together, and how often it was asked.
    #[derive(Clone)]
    struct Counting {
        served: Arc<AtomicUsize>,
        /// Nobody is served without one.
        allowed: Arc<Semaphore>,
    }

    impl Counting {
        fn new(allowed: usize) -> Counting {
            Counting {
                served: Arc::default(),
                allowed: Arc::new(Semaphore::new(allowed)),
            }
        }
    }

    impl BatchHandler<char, usize, (usize, usize)> for Counting {
        async fn serve(self, _: char, questions: Vec<usize>) -> Vec<(usize, usize)> {
            if let Ok(allowed) = self.allowed.acquire().await {
                allowed.forget();
            }
            self.served.fetch_add(1, Ordering::SeqCst);
            let many = questions.len();
            questions.into_iter().map(|one| (one, many)).collect()
        }
    }

    type Asked = tokio::task::JoinHandle<Option<(usize, usize)>>;

    fn asked(batcher: &Arc<Of>, kind: char, one: usize, handler: &Counting) -> Asked {
        let (batcher, handler) = (Arc::clone(batcher), handler.clone());
        tokio::spawn(async move { batcher.ask(kind, one, &handler).await })
    }

    type Of = Batcher<char, usize, (usize, usize)>;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// Until everybody who can has come in.
    async fn settled(batcher: &Of, waiting: usize) {
        loop {
            let lines: usize = batcher.state().lines.values().map(VecDeque::len).sum();
            if lines == waiting && !batcher.state().slots.is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn whoever_comes_alone_is_served_alone_and_at_once() {
        let (batcher, handler) = (Of::with_max_wait(FOR_EVER), Counting::new(9));
        for one in 0..3 {
            assert_eq!(batcher.ask('a', one, &handler).await, Some((one, 1)));
        }
        assert_eq!(handler.served.load(Ordering::SeqCst), 3);
        assert!(batcher.state().slots.is_empty());
    }

    #[tokio::test]
    async fn the_longest_line_is_served_in_one_go() {
        let (batcher, handler) = (Of::with_max_wait(FOR_EVER), Counting::new(0));
        let first = asked(&batcher, 'a', 0, &handler);
        settled(&batcher, 0).await;
        let short = asked(&batcher, 'a', 1, &handler);
        let long: Vec<Asked> = (2..5)
            .map(|one| asked(&batcher, 'b', one, &handler))
            .collect();
        settled(&batcher, 4).await;
        handler.allowed.add_permits(2);
        assert_eq!(first.await.unwrap(), Some((0, 1)));
        for (at, one) in long.into_iter().enumerate() {
            assert_eq!(one.await.unwrap(), Some((at + 2, 3)));
        }
        assert!(!short.is_finished());
        handler.allowed.add_permits(1);
        assert_eq!(short.await.unwrap(), Some((1, 1)));
        assert!(batcher.state().slots.is_empty());
        assert!(batcher.state().lines.is_empty());
    }

    #[tokio::test]
    async fn whoever_waited_long_is_served_beside_one_who_does_not_end() {
        let (batcher, handler) = (Of::with_max_wait(Duration::ZERO), Counting::new(0));
        let stuck = Counting::new(0);
        let first = asked(&batcher, 'a', 0, &stuck);
        settled(&batcher, 0).await;
        handler.allowed.add_permits(1);
        let second = asked(&batcher, 'b', 1, &handler);
        assert_eq!(second.await.unwrap(), Some((1, 1)));
        first.abort();
        assert!(first.await.is_err());
        // Whoever was cut off left nothing behind.
        handler.allowed.add_permits(1);
        assert_eq!(batcher.ask('a', 2, &handler).await, Some((2, 1)));
        assert!(batcher.state().slots.is_empty());
    }

    #[tokio::test]
    async fn whoever_went_away_is_not_served() {
        let (batcher, handler) = (Of::with_max_wait(FOR_EVER), Counting::new(0));
        let first = asked(&batcher, 'a', 0, &handler);
        settled(&batcher, 0).await;
        let (gone, stays) = (
            asked(&batcher, 'a', 1, &handler),
            asked(&batcher, 'a', 2, &handler),
        );
        settled(&batcher, 2).await;
        gone.abort();
        assert!(gone.await.is_err());
        handler.allowed.add_permits(2);
        assert_eq!(first.await.unwrap(), Some((0, 1)));
        assert_eq!(stays.await.unwrap(), Some((2, 1)));
    }

    #[test]
    fn the_end_of_a_runtime_leaves_nobody_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (batcher, handler) = (Of::with_max_wait(FOR_EVER), Counting::new(0));
        runtime.block_on(async {
            asked(&batcher, 'a', 0, &handler);
            settled(&batcher, 0).await;
            asked(&batcher, 'a', 1, &handler);
            settled(&batcher, 1).await;
        });
        drop(runtime);
        assert!(batcher.state().slots.is_empty());
        assert!(batcher.state().lines.is_empty());
    }
}
