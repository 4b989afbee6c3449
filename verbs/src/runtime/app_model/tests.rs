//! Kinds of applications, by what they do.

use irnic_transports::time::MS;

use super::*;

const BEGIN: Time = Time(1_000 * SEC);

/// An application at work. The background thread runs at intervals of [`POLL_INTERVAL`].
struct App {
    model: AppModel,
    now: Time,
}

impl App {
    fn new() -> App {
        App { model: AppModel { next_run: BEGIN, ..AppModel::new(BEGIN) }, now: BEGIN }
    }

    fn wait(&mut self, ns: u64) {
        self.now += ns;
        self.model.next_run = self.model.next_run.max(self.now);
    }

    /// Polls the port, and finds nothing.
    fn poll_in_vain(&mut self) {
        assert!(!self.model.took(0));
        self.model.polls(self.now);
        self.model.polled_empty(self.now);
    }

    /// Polls the port, and takes a completion.
    fn poll(&mut self) {
        self.model.polls(self.now);
        self.model.memory_watch.took(self.now);
        self.model.called(self.now);
    }

    /// Posts a message. Returns whether peers have to ring.
    fn post(&mut self) -> bool {
        if self.model.posted(self.now) || self.model.sent(1) {
            self.model.post_ended(self.now);
        }
        self.model.called(self.now)
    }

    /// Has the background thread find a packet. Returns whether the application counts as one that leaves packets.
    fn lies(&mut self) -> bool {
        let patience = self.model.patience(self.now);
        self.model.memory_watch.arrived(self.now);
        self.model.found(self.now, patience);
        self.model.is_idle(self.now)
    }
}

#[test]
fn who_polls_in_a_loop_does_the_work_itself() {
    let mut app = App::new();
    for _ in 0..10_000 {
        app.wait(US);
        app.poll_in_vain();
        assert!(app.model.is_polling(app.now) && !app.model.needs_wakeup(app.now));
    }
    assert_eq!(app.model.interval(app.now), POLL_INTERVAL);
    app.wait(POLLING - 1);
    assert!(app.model.is_polling(app.now) && !app.lies() && !app.lies(), "its core may have been taken from it");
    // No longer a loop: the background thread looks after it, ever more rarely.
    app.wait(1);
    assert!(!app.model.is_polling(app.now));
    for (pause, interval) in [(10 * MS, IDLE_INTERVAL), (WATCHFUL, u64::MAX)] {
        app.wait(pause);
        assert_eq!(app.model.interval(app.now), interval);
    }
}

#[test]
fn who_polls_all_the_time_is_waited_for_though_it_lost_its_core() {
    let mut app = App::new();
    assert_eq!(app.model.patience(app.now), SPINNING);
    for polls in [OFTEN, OFTEN - 1, 0, OFTEN] {
        for _ in 0..polls {
            app.poll_in_vain();
        }
        app.wait(A_WHILE);
        let patience = if polls == OFTEN { POLLING } else { SPINNING };
        let later = app.now + (A_WHILE - 1);
        assert_eq!([app.now, later].map(|at| app.model.patience(at)), [patience; 2], "{polls} polls");
    }
}

#[test]
fn peers_ring_for_who_sleeps_on_a_channel_or_after_empty_polls() {
    let sleeps: [fn(&mut AppModel); 2] = [|model| model.waiting_cqs = 1, |model| model.empty_polls.sleep(0)];
    for sleep in sleeps {
        let mut app = App::new();
        app.poll();
        assert!(!app.post() && app.model.may_defer_acks(1, 1, app.now) && app.model.may_leave_acks(1, 1, app.now));
        sleep(&mut app.model);
        assert!(app.post() && app.model.is_awaited() && !app.model.is_polling(app.now));
        assert!(!app.model.may_defer_acks(1, 1, app.now) && !app.model.may_leave_acks(1, 1, app.now));
    }
}

#[test]
fn acknowledgements_wait_for_short_replies_that_come_in_time() {
    let mut app = App::new();
    app.poll();
    let may_wait = |app: &App, received, unanswered| app.model.may_defer_acks(received, unanswered, app.now);
    assert!(may_wait(&app, 1, 1) && may_wait(&app, CONVERSATION, CONVERSATION));
    assert!(!may_wait(&app, 0, 1) && !may_wait(&app, CONVERSATION + 1, 3) && !may_wait(&app, 1, ENOUGH_UNANSWERED));
    // None comes.
    app.model.answers.expect(app.now);
    app.wait(MS);
    app.model.give_up_answer(app.now);
    assert!(!may_wait(&app, 1, 1) && app.model.packets_may_wait(app.now).is_none());
    app.wait(5 * MS);
    assert!(may_wait(&app, 1, 1));
    // One that was found not to poll, and one that replies nevertheless; then at length.
    app.model.idle_until = Time::NEVER;
    assert!(!may_wait(&app, 1, 1));
    app.model.answers.expect(app.now);
    app.post();
    assert!(may_wait(&app, 1, 1));
    app.model.sent(CONVERSATION + 2);
    assert!(!may_wait(&app, 1, 1));
}

#[test]
fn who_looks_at_memory_is_waited_for_and_waits() {
    let mut app = App::new();
    for _ in 0..100 {
        app.post();
        app.poll();
        app.wait(30 * US);
        app.lies();
        assert!(app.model.may_leave_acks(1, 1, app.now), "it may be about to reply");
        app.wait(US);
    }
    app.post();
    assert!(app.model.memory_watch.is_shown());
    app.wait(LATELY);
    assert!(!app.model.may_leave_acks(1, 1, app.now), "it has gone");
}

#[test]
fn who_posts_and_leaves_has_peers_ring_at_each_call() {
    let mut app = App::new();
    app.poll();
    assert!(!app.post());
    app.wait(POLLING);
    assert!(!app.lies(), "it may have been preempted");
    app.wait(SPINNING);
    assert!(app.lies());
    app.wait(IDLE_HOLD - 1);
    assert!(app.post() && app.model.packets_may_wait(app.now).is_none());
    app.wait(1);
    assert!(!app.post() && app.model.packets_may_wait(app.now) == Some(app.now + LONGEST_WAIT));
    // Packets that waited for its next post have waited in vain.
    app.wait(LONGEST_WAIT);
    app.model.packets_waited(app.now);
    app.post();
    assert!(app.model.packets_may_wait(app.now).is_none());
}

#[test]
fn who_takes_completions_between_posts_need_not_poll_the_port_each_time() {
    let mut app = App::new();
    app.poll();
    for _ in 1..TAKEN_WITHOUT_POLL {
        app.post();
        assert!(app.model.took(1));
    }
    assert!(!app.model.took(1), "there may be packets");
    app.poll();
    app.wait(UNSEEN);
    assert!(app.model.posted(app.now), "it has not polled for some time");
    app.model.called(app.now);
    assert!(!app.model.took(1));
}
