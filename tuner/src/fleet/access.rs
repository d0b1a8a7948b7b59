//! How a server is reached, and who one is there: NATS's own means.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, ServerAddr};

use super::FleetError;

/// How long a server is waited for that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(300);

/// How a server is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `nats://HOST:4222`, or `tls://..`; several are separated by commas.
    pub url: String,
    /// A token that the server knows.
    pub token: Option<String>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// A file with a user's JWT and the seed of its key.
    pub creds: Option<PathBuf>,
    /// Certificates of authorities that the server's may be signed by.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Access {
    /// The address without a password that may be in it.
    pub fn server(&self) -> String {
        let without = |url: &str| match url.rsplit_once('@') {
            Some((front, host)) => {
                let scheme = front.split_once("://").map_or("", |(scheme, _)| scheme);
                format!("{scheme}://{host}")
            }
            None => url.to_owned(),
        };
        self.url.split(',').map(without).collect::<Vec<_>>().join(",")
    }

    pub(super) async fn connect(&self) -> Result<async_nats::Client, FleetError> {
        let servers = self.servers()?;
        let start = std::time::Instant::now();
        loop {
            let error = match self.options(&servers)?.connect(&servers[..]).await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            let (server, reason) = (self.server(), error.to_string());
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    return Err(FleetError::Login { server, reason });
                }
                ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => {}
                _ if start.elapsed() < PATIENCE => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                _ => {}
            }
            return Err(FleetError::Connect { server, reason });
        }
    }

    fn servers(&self) -> Result<Vec<ServerAddr>, FleetError> {
        let wrong = |e: std::io::Error| FleetError::Connect {
            server: self.server(),
            reason: format!("not an address such as nats://host:4222: {e}"),
        };
        self.url.split(',').map(|url| url.parse().map_err(wrong)).collect()
    }

    fn options(&self, servers: &[ServerAddr]) -> Result<ConnectOptions, FleetError> {
        let file = |path: &PathBuf, e: std::io::Error| FleetError::File {
            path: path.clone(),
            reason: e.to_string(),
        };
        let mut options = ConnectOptions::new()
            .name("ansc")
            .connection_timeout(Duration::from_secs(5))
            .ping_interval(Duration::from_secs(20))
            .reconnect_delay_callback(|tries| Duration::from_millis((50 * tries as u64).min(1000)));
        // The client reads no names from addresses. One without a password is a token.
        let named = servers.iter().find_map(|s| Some((s.username()?, s.password())));
        options = match (&self.token, named) {
            (Some(token), _) => options.token(token.clone()),
            (None, Some((token, None))) => options.token(token.to_owned()),
            (None, Some((user, Some(word)))) => {
                options.user_and_password(user.to_owned(), word.to_owned())
            }
            (None, None) => options,
        };
        if let Some(path) = &self.nkey {
            let seed = std::fs::read_to_string(path).map_err(|e| file(path, e))?;
            options = options.nkey(seed.trim().to_owned());
        }
        if let Some(path) = &self.creds {
            let creds = std::fs::read_to_string(path).map_err(|e| file(path, e))?;
            options = options.credentials(&creds).map_err(|e| file(path, e))?;
        }
        if let Some(path) = &self.ca {
            options = options.add_root_certificates(path.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_show_passwords() {
        let server = |url: &str| Access { url: url.into(), ..Access::default() }.server();
        assert_eq!(server("nats://a:4222"), "nats://a:4222");
        assert_eq!(server("tls://me:secret@a:1,nats://t@b"), "tls://a:1,nats://b");
        assert_eq!(server("me:secret@a"), "://a");
    }
}
