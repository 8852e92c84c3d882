//! A proxy that cuts connections: when told to, or in the middle of what is being said.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kukuri_testkit::generate::{Dice, Seed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::rig::url;

/// How much is passed on before a connection is cut, at most; most live far shorter.
const LIFE_BYTES_MAX: usize = 60_000;

pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    dice: Mutex<Dice>,
    cutting: AtomicBool,
    cuts: AtomicUsize,
    /// Counts the commands to cut everything.
    command: watch::Sender<usize>,
}

impl Proxy {
    /// Passes everything on until told otherwise.
    pub async fn start(relay: SocketAddr, seed: Seed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            dice: Mutex::new(seed.dice()),
            cutting: AtomicBool::new(false),
            cuts: AtomicUsize::new(0),
            command: watch::Sender::new(0),
        });
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, relay, Arc::clone(&shared)));
        Self { address, shared, _serving: serving }
    }

    pub fn url(&self) -> String {
        url(self.address)
    }

    /// Cuts every connection now.
    pub fn cut(&self) {
        self.shared.command.send_modify(|commands| *commands += 1);
    }

    /// Gives each connection, from now on, a random number of bytes to live.
    pub fn begin_cutting(&self) {
        self.shared.cutting.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Cuts no more.
    pub fn end_cutting(&self) {
        self.shared.cutting.store(false, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, relay: SocketAddr, shared: Arc<Shared>) {
    let mut links = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        while links.try_join_next().is_some() {}
        links.spawn(link(client, relay, Arc::clone(&shared)));
    }
}

/// Both directions, until one of them ends or is cut. Then both sockets are dropped, with whatever
/// was on its way.
async fn link(client: TcpStream, relay: SocketAddr, shared: Arc<Shared>) {
    let mut commands = shared.command.subscribe();
    let Ok(server) = TcpStream::connect(relay).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let life = |shared: &Shared| {
        let dice = &mut *shared.dice.lock().unwrap();
        let size = dice.weigh(&[(LIFE_BYTES_MAX, 20), (8_000, 50), (1_500, 30)]);
        1 + dice.below(size)
    };
    let cut = tokio::select! {
        cut = pass(from_client, to_server, life(&shared), &shared) => cut,
        cut = pass(from_server, to_client, life(&shared), &shared) => cut,
        _ = commands.changed() => true,
    };
    shared.cuts.fetch_add(usize::from(cut), Ordering::SeqCst);
}

/// Whether it ended by a cut.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut life: usize,
    shared: &Shared,
) -> bool {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let size = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return false,
            Ok(size) => size,
        };
        let cutting = shared.cutting.load(Ordering::SeqCst);
        let passed = if cutting { size.min(life) } else { size };
        if to.write_all(&buffer[..passed]).await.is_err() {
            return false;
        }
        if cutting && size >= life {
            return true;
        }
        life = life.saturating_sub(if cutting { size } else { 0 });
    }
}
