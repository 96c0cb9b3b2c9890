//! The authorities that a connection trusts if nobody names any: those of `SSL_CERT_FILE` and `SSL_CERT_DIR`, else those of
//! the system, else Mozilla's, which are compiled in. An image without files has no others.

use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The variables that name authorities in place of those of the system.
const NAMED_BY: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// TLS as a client that trusts these authorities and has no certificate of its own.
pub fn client_config() -> ClientConfig {
    ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(DefaultRoots::default()))
        .with_no_client_auth()
}

/// Checks servers against these authorities. They are read when the first server is checked: a host that speaks http alone,
/// or names its authorities, needs none.
#[derive(Debug)]
pub(crate) struct DefaultRoots {
    provider: Arc<CryptoProvider>,
    verifier: OnceLock<Result<Arc<WebPkiServerVerifier>, String>>,
}

impl Default for DefaultRoots {
    fn default() -> Self {
        DefaultRoots {
            provider: Arc::new(ring::default_provider()),
            verifier: OnceLock::new(),
        }
    }
}

impl DefaultRoots {
    fn verifier(&self) -> Result<&WebPkiServerVerifier, Error> {
        let verifier = self.verifier.get_or_init(|| {
            let are_named = NAMED_BY.iter().any(|name| std::env::var_os(name).is_some());
            let roots = Arc::new(roots(rustls_native_certs::load_native_certs(), are_named)?);
            WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone())
                .build()
                .map_err(|e| e.to_string())
        });
        verifier.as_deref().map_err(|why| Error::General(why.clone()))
    }
}

/// The authorities to trust. What a variable names is never replaced: who limits the authorities must not get all of them
/// because a file is missing.
fn roots(found: rustls_native_certs::CertificateResult, are_named: bool) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        false => Ok(roots),
        true if are_named => {
            let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            Err(format!(
                "{} name no certificate of an authority: {}",
                NAMED_BY.join(" and "),
                why.join("; ")
            ))
        }
        true => Ok(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        }),
    }
}

impl ServerCertVerifier for DefaultRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier()?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls_native_certs::CertificateResult;

    use super::*;

    fn nothing() -> CertificateResult {
        CertificateResult::default()
    }

    #[test]
    fn without_any_authority_of_the_system_those_that_are_compiled_in_are_trusted() {
        let compiled_in = roots(nothing(), false).expect("there are some");
        assert_eq!(compiled_in.roots, webpki_roots::TLS_SERVER_ROOTS);
    }

    #[test]
    fn authorities_that_a_variable_names_are_never_replaced() {
        let wrong = roots(nothing(), true).expect_err("none was found");
        assert!(
            wrong.starts_with("SSL_CERT_FILE and SSL_CERT_DIR name no"),
            "{wrong}"
        );
    }
}
