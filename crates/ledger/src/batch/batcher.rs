//! Callers who want the same kind of thing at the same time, served together.
//!
//! A statement costs a server more than most of what it says: callers who come while others
//! are being served wait in a line for each kind, and the longest line is served next, in
//! one go. The busier a process is, the less each caller costs. Nobody waits for company:
//! whoever comes to an empty house is served at once.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How many are served in one go at most.
const MOST: usize = 32;
/// How many lines are served at once: two would serve each other's guests one by one.
const TABLES: usize = 1;
/// Whoever waited for so long is not passed over any more.
const PATIENCE: Duration = Duration::from_millis(20);

/// Who serves them: an answer for each question, in their order.
pub(crate) trait BatchHandler<K, Q, A>: Clone + Send + 'static {
    fn serve(self, kind: K, questions: Vec<Q>) -> impl Future<Output = Vec<A>> + Send;
}

/// Those who wait, by what they want.
pub(crate) struct Batcher<K, Q, A> {
    patience: Duration,
    house: Mutex<BatchState<K, Q, A>>,
}

struct BatchState<K, Q, A> {
    /// Nobody has an empty line.
    lines: HashMap<K, VecDeque<QueuedCall<Q, A>>>,
    /// The tables where somebody is served, each with its number and since when.
    tables: Vec<(u64, Instant)>,
    next_table: u64,
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
        let first = line.drain(..line.len().min(MOST)).collect();
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
        Batcher::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> Arc<Batcher<K, Q, A>> {
        Arc::new(Batcher {
            patience,
            house: Mutex::new(BatchState {
                lines: HashMap::new(),
                tables: Vec::new(),
                next_table: 0,
            }),
        })
    }

    fn house(&self) -> MutexGuard<'_, BatchState<K, Q, A>> {
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer; none if everything ends before it is there.
    pub(crate) async fn ask<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        kind: K,
        question: Q,
        host: &H,
    ) -> Option<A> {
        let (table, question) = match self.come_in(&kind, question, host) {
            Ok(seated) => seated,
            Err(told) => return self.wait(&kind, told, host).await,
        };
        // Those who were answered together come together: let them.
        tokio::task::yield_now().await;
        if !self.house().lines.is_empty() {
            let told = self.house().join(kind.clone(), question);
            drop(table);
            return self.wait(&kind, told, host).await;
        }
        let answers = host.clone().serve(kind, vec![question]).await;
        drop(table);
        answers.into_iter().next()
    }

    /// A table for the question, or the place where its answer will be.
    fn come_in<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        kind: &K,
        question: Q,
        host: &H,
    ) -> Result<HeldSlot<K, Q, A, H>, oneshot::Receiver<A>> {
        let mut house = self.house();
        match self.table(&mut house, host, false) {
            Some(table) => Ok((table, question)),
            None => Err(house.join(kind.clone(), question)),
        }
    }

    /// One that is free; whoever must not wait any longer gets one in any case. Where
    /// somebody has been served for too long, nobody waits for the end of it.
    fn table<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        house: &mut BatchState<K, Q, A>,
        host: &H,
        in_any_case: bool,
    ) -> Option<BatchSlot<K, Q, A, H>> {
        let now = Instant::now();
        let lasts = |since: Instant| now.saturating_duration_since(since) < self.patience;
        let busy = house.tables.iter().filter(|(_, since)| lasts(*since));
        if busy.count() >= TABLES && !in_any_case {
            return None;
        }
        house.next_table += 1;
        house.tables.push((house.next_table, now));
        Some(BatchSlot {
            company: Arc::clone(self),
            host: host.clone(),
            number: house.next_table,
            begins: false,
        })
    }

    async fn wait<H: BatchHandler<K, Q, A>>(
        self: &Arc<Self>,
        kind: &K,
        mut told: oneshot::Receiver<A>,
        host: &H,
    ) -> Option<A> {
        loop {
            if let Ok(answer) = tokio::time::timeout(self.patience, &mut told).await {
                return answer.ok();
            }
            // Longer lines were served all the time, or nobody comes to an end.
            let mut house = self.house();
            if !house.lines.contains_key(kind) {
                break;
            }
            let table = self.table(&mut house, host, true);
            drop(house);
            if let Some(table) = table {
                table.begin(Some(kind.clone()));
            }
        }
        told.await.ok()
    }

    /// Those who are served next: of this line, or else of the longest.
    fn next(&self, kind: Option<K>) -> Option<(K, Vec<QueuedCall<Q, A>>)> {
        let mut house = self.house();
        let kind = kind.or_else(|| house.longest())?;
        let guests = house.take(&kind);
        (!guests.is_empty()).then_some((kind, guests))
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
    company: Arc<Batcher<K, Q, A>>,
    host: H,
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
            let Some((kind, guests)) = self.company.next(kind) else {
                return;
            };
            let (questions, tell): (Vec<_>, Vec<_>) = guests.into_iter().unzip();
            let answers = self.host.clone().serve(kind, questions).await;
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
        let mut house = self.company.house();
        house.tables.retain(|(number, _)| *number != self.number);
        if self.begins || tokio::runtime::Handle::try_current().is_err() {
            // The runtime ends, and with it those who wait.
            let lines = std::mem::take(&mut house.lines);
            drop(house);
            drop(lines);
            return;
        }
        if house.lines.is_empty() {
            return;
        }
        let table = self.company.table(&mut house, &self.host, false);
        drop(house);
        if let Some(table) = table {
            table.begin(None);
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

    fn asked(company: &Arc<Of>, kind: char, one: usize, host: &Counting) -> Asked {
        let (company, host) = (Arc::clone(company), host.clone());
        tokio::spawn(async move { company.ask(kind, one, &host).await })
    }

    type Of = Batcher<char, usize, (usize, usize)>;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// Until everybody who can has come in.
    async fn settled(company: &Of, waiting: usize) {
        loop {
            let lines: usize = company.house().lines.values().map(VecDeque::len).sum();
            if lines == waiting && !company.house().tables.is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn whoever_comes_alone_is_served_alone_and_at_once() {
        let (company, host) = (Of::with_patience(FOR_EVER), Counting::new(9));
        for one in 0..3 {
            assert_eq!(company.ask('a', one, &host).await, Some((one, 1)));
        }
        assert_eq!(host.served.load(Ordering::SeqCst), 3);
        assert!(company.house().tables.is_empty());
    }

    #[tokio::test]
    async fn the_longest_line_is_served_in_one_go() {
        let (company, host) = (Of::with_patience(FOR_EVER), Counting::new(0));
        let first = asked(&company, 'a', 0, &host);
        settled(&company, 0).await;
        let short = asked(&company, 'a', 1, &host);
        let long: Vec<Asked> = (2..5).map(|one| asked(&company, 'b', one, &host)).collect();
        settled(&company, 4).await;
        host.allowed.add_permits(2);
        assert_eq!(first.await.unwrap(), Some((0, 1)));
        for (at, one) in long.into_iter().enumerate() {
            assert_eq!(one.await.unwrap(), Some((at + 2, 3)));
        }
        assert!(!short.is_finished());
        host.allowed.add_permits(1);
        assert_eq!(short.await.unwrap(), Some((1, 1)));
        assert!(company.house().tables.is_empty());
        assert!(company.house().lines.is_empty());
    }

    #[tokio::test]
    async fn whoever_waited_long_is_served_beside_one_who_does_not_end() {
        let (company, host) = (Of::with_patience(Duration::ZERO), Counting::new(0));
        let stuck = Counting::new(0);
        let first = asked(&company, 'a', 0, &stuck);
        settled(&company, 0).await;
        host.allowed.add_permits(1);
        let second = asked(&company, 'b', 1, &host);
        assert_eq!(second.await.unwrap(), Some((1, 1)));
        first.abort();
        assert!(first.await.is_err());
        // Whoever was cut off left nothing behind.
        host.allowed.add_permits(1);
        assert_eq!(company.ask('a', 2, &host).await, Some((2, 1)));
        assert!(company.house().tables.is_empty());
    }

    #[tokio::test]
    async fn whoever_went_away_is_not_served() {
        let (company, host) = (Of::with_patience(FOR_EVER), Counting::new(0));
        let first = asked(&company, 'a', 0, &host);
        settled(&company, 0).await;
        let (gone, stays) = (
            asked(&company, 'a', 1, &host),
            asked(&company, 'a', 2, &host),
        );
        settled(&company, 2).await;
        gone.abort();
        assert!(gone.await.is_err());
        host.allowed.add_permits(2);
        assert_eq!(first.await.unwrap(), Some((0, 1)));
        assert_eq!(stays.await.unwrap(), Some((2, 1)));
    }

    #[test]
    fn the_end_of_a_runtime_leaves_nobody_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (company, host) = (Of::with_patience(FOR_EVER), Counting::new(0));
        runtime.block_on(async {
            asked(&company, 'a', 0, &host);
            settled(&company, 0).await;
            asked(&company, 'a', 1, &host);
            settled(&company, 1).await;
        });
        drop(runtime);
        assert!(company.house().tables.is_empty());
        assert!(company.house().lines.is_empty());
    }
}
