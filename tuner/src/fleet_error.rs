//! Why a fleet cannot be used, and what to do about it.

use std::path::PathBuf;

/// Why a fleet cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// No connection to the server.
    #[error(
        "{server}: no connection ({reason}); start a server there with `nats-server --jetstream`, or name another one \
         with --fleet"
    )]
    Connect {
        /// The address, without secrets.
        server: String,
        /// The client's own words.
        reason: String,
    },
    /// The server does not let us in.
    #[error(
        "{server}: refused ({reason}); say who you are with --fleet-token, --fleet-nkey or --fleet-creds"
    )]
    Login {
        /// The address, without secrets.
        server: String,
        /// The client's own words.
        reason: String,
    },
    /// The server does not do something for too long.
    #[error(
        "{server}: {what} failed for {seconds} s ({reason}); see whether the server runs with `--jetstream`, has room \
         on its disk, and gives this user the rights that the book's page about fleets lists"
    )]
    Server {
        /// The address, without secrets.
        server: String,
        /// The request.
        what: &'static str,
        /// How long it was tried.
        seconds: u64,
        /// The client's own words.
        reason: String,
    },
    /// A file with a key or a name cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault, and a remedy.
        reason: String,
    },
    /// No thread, or no event loop.
    #[error("the connection has no thread to run on: {0}; raise the limit on processes")]
    Runtime(#[source] std::io::Error),
    /// Nobody measures for this kind of machine.
    #[error(
        "no worker of the fleet measured for this kind of machine ({kind}) in {seconds} s; {others}; start one there \
         with `ansc worker --fleet`"
    )]
    NoWorker {
        /// The kind that is wanted.
        kind: String,
        /// How long it was waited.
        seconds: u64,
        /// In what the kinds that are there differ.
        others: String,
    },
    /// Workers refuse what this tuner asks for.
    #[error("worker {machine} refuses a candidate: {reason}")]
    Refused {
        /// The name of the worker.
        machine: String,
        /// Both sides, and what to do.
        reason: String,
    },
    /// A subgraph that is too large for a message.
    #[error(
        "a candidate takes {bytes} bytes as text, and a fleet takes {most}: leave the subgraph out, or tune it without \
         --fleet"
    )]
    TooLarge {
        /// The size of the message.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// The lease of a device cannot be had.
    #[error("{}: the lease of the device cannot be taken: {source}; name another file with --lease", path.display())]
    Lease {
        /// The file that is locked.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}
