//! A proxy before PostgreSQL that cuts connections at a COMMIT, so that the client cannot know its
//! outcome.

mod dialogue;
mod message;

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use dialogue::Dialogue;
use message::{Opening, read_answer_to_encryption, read_message, read_opening};

/// When a connection is cut. A prepared statement that writes outside of a transaction commits when it
/// ends, and that is meant by COMMIT too. The COMMIT of a transaction that began as READ ONLY counts for
/// nothing: there is no outcome that the client could be in doubt about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// At the next COMMIT, which does not reach the server.
    BeforeCommit,
    /// At the next COMMIT, after the server has answered it; the answer does not reach the client.
    AfterCommit,
    /// At once, every open connection.
    Now,
}

/// A listener on loopback that passes everything on until it is told to cut. It goes on taking new
/// connections after a cut. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    switch: Arc<Switch>,
}

impl Proxy {
    /// Listens on a free port before the PostgreSQL server on `server_port` of this machine.
    ///
    /// # Errors
    /// When loopback has no free port.
    pub fn start(server_port: u16) -> io::Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let switch = Arc::new(Switch::default());
        let shared = Arc::clone(&switch);
        thread::spawn(move || accept(&listener, server_port, &shared));
        Ok(Proxy { address, switch })
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address of `database` through this proxy, for the superuser of a test cluster.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address)
    }

    /// Cuts now, or prepares one cut at the next COMMIT of whatever connection.
    pub fn cut(&self, cut: Cut) {
        let mut state = self.switch.lock();
        match cut {
            Cut::BeforeCommit | Cut::AfterCommit => state.armed = Some(cut),
            Cut::Now => state.cut_all(),
        }
    }

    /// Takes back a cut that was prepared and has not happened.
    pub fn pass(&self) {
        self.switch.lock().armed = None;
    }

    /// How many connections have been cut so far.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.switch.lock().cuts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        {
            let mut state = self.switch.lock();
            state.closed = true;
            state.cut_all();
        }
        // The listener waits for a connection and looks at the switch only then.
        let _ = TcpStream::connect(self.address);
    }
}

/// What the proxy's threads share.
#[derive(Debug, Default)]
struct Switch {
    state: Mutex<State>,
}

impl Switch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    armed: Option<Cut>,
    cuts: u64,
    closed: bool,
    open: Vec<Arc<Link>>,
}

impl State {
    fn cut_all(&mut self) {
        for link in std::mem::take(&mut self.open) {
            link.close();
            self.cuts += 1;
        }
    }
}

/// A client's connection and the one to the server that belongs to it.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    answers: Mutex<Answers>,
}

/// PostgreSQL ends the answer to every request with ReadyForQuery, so counting tells which is
/// whose.
#[derive(Debug, Default)]
struct Answers {
    /// Answers the client has a right to: one for the start, then one for each request it sent.
    asked: u64,
    /// The number of the answer after which the connection is cut; nothing of it is passed on.
    withheld: Option<u64>,
}

impl Link {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        // Either may have been closed by its peer before.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, server_port: u16, switch: &Arc<Switch>) {
    for client in listener.incoming() {
        if switch.lock().closed {
            return;
        }
        // A server that is down closes the client's connection, as it would without a proxy.
        let Ok(link) = client.and_then(|client| connect(client, server_port)) else {
            continue;
        };
        switch.lock().open.push(Arc::clone(&link));
        let switch = Arc::clone(switch);
        thread::spawn(move || {
            let _ = serve(&link, &switch);
            link.close();
            switch.lock().open.retain(|other| !Arc::ptr_eq(other, &link));
        });
    }
}

fn connect(client: TcpStream, server_port: u16) -> io::Result<Arc<Link>> {
    let server = TcpStream::connect(("127.0.0.1", server_port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok(Arc::new(Link { client, server, answers: Mutex::default() }))
}

fn serve(link: &Arc<Link>, switch: &Arc<Switch>) -> io::Result<()> {
    let (mut client, mut server) = (&link.client, &link.server);
    loop {
        let opening = read_opening(&mut client)?;
        server.write_all(opening.bytes())?;
        match opening {
            Opening::Encryption(_) => client.write_all(&read_answer_to_encryption(&mut server)?)?,
            Opening::Session(_) => break,
        }
    }
    link.answers().asked = 1;
    let (back, back_switch) = (Arc::clone(link), Arc::clone(switch));
    let answers = thread::spawn(move || {
        let _ = pass_answers(&back, &back_switch);
        back.close();
    });
    let outcome = pass_requests(link, switch);
    // A client that goes away without a cut takes its connection to the server with it.
    if !matches!(outcome, Ok(After::AnswerWithheld)) {
        link.close();
    }
    answers.join().map_err(|_| io::Error::other("the thread for answers panicked"))?;
    outcome.map(drop)
}

/// Who closes the connection after the last request.
enum After {
    Closed,
    AnswerWithheld,
}

fn pass_requests(link: &Arc<Link>, switch: &Switch) -> io::Result<After> {
    let (mut client, mut server) = (&link.client, &link.server);
    let mut dialogue = Dialogue::default();
    loop {
        let request = read_message(&mut client)?;
        let cut = if dialogue.commits(&request) { switch.lock().armed.take() } else { None };
        if cut == Some(Cut::BeforeCommit) {
            count_and_close(link, switch);
            return Ok(After::Closed);
        }
        {
            let mut answers = link.answers();
            answers.asked += u64::from(request.asks_for_an_answer());
            if cut == Some(Cut::AfterCommit) {
                answers.withheld = Some(answers.asked);
            }
        }
        server.write_all(request.bytes())?;
        if cut == Some(Cut::AfterCommit) {
            return Ok(After::AnswerWithheld);
        }
    }
}

fn pass_answers(link: &Arc<Link>, switch: &Switch) -> io::Result<()> {
    let (mut client, mut server) = (&link.client, &link.server);
    let mut complete = 0;
    loop {
        let answer = read_message(&mut server)?;
        let ends = answer.ends_an_answer();
        complete += u64::from(ends);
        let belongs_to = if ends { complete } else { complete + 1 };
        let withheld = link.answers().withheld;
        if withheld.is_none_or(|number| belongs_to < number) {
            client.write_all(answer.bytes())?;
        } else if withheld == Some(complete) {
            count_and_close(link, switch);
            return Ok(());
        }
    }
}

/// Counts before it closes, so that a client that has seen its connection break finds the cut
/// counted.
fn count_and_close(link: &Arc<Link>, switch: &Switch) {
    let mut state = switch.lock();
    let open = state.open.len();
    state.open.retain(|other| !Arc::ptr_eq(other, link));
    // A connection that is not open any more was cut and counted by somebody else.
    state.cuts += u64::from(state.open.len() < open);
    drop(state);
    link.close();
}
