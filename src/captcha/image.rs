//! Images of challenges: drawn off the async threads, and cached for a short while.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::CaptchaForm;
use super::draw;
use super::id::{ChallengeNonce, VerifiedId};
use super::slots::Slot;
use crate::secret::{MasterKey, SigningKeys};
use crate::throttle::Refusal;

/// About 2,000 images. A dropped image is drawn again with the same bytes, and counts again.
const CACHE_BYTES: u64 = 8 << 20;
const CACHE_IMAGES: usize = 2_000;

/// No image for this client, or for anyone, until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageRefusal {
    pub retry_after: Duration,
    pub form: CaptchaForm,
    /// The limit that refused, and how.
    pub limit: &'static str,
    pub refusal: Refusal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Expired, or not one of our ids: both get the same answer, because there is nothing to draw.
    #[error("no such challenge")]
    Unknown,
    #[error("too many images were drawn recently")]
    Refused(ImageRefusal),
    #[error("too many images are being drawn; try again in a second")]
    Busy,
    #[error("the image could not be drawn")]
    Failed,
}

pub struct ChallengeImages {
    seed: SigningKeys,
    cache: Cache<ChallengeNonce, Arc<[u8]>, ImageWeight>,
}

#[derive(Clone)]
struct ImageWeight;

impl Weighter<ChallengeNonce, Arc<[u8]>> for ImageWeight {
    fn weight(&self, nonce: &ChallengeNonce, png: &Arc<[u8]>) -> u64 {
        (nonce.len() + png.len()) as u64
    }
}

impl ChallengeImages {
    pub fn new(key: &MasterKey) -> Self {
        Self {
            seed: key.derive_signing("captcha.image"),
            cache: Cache::with_weighter(CACHE_IMAGES, CACHE_BYTES, ImageWeight),
        }
    }

    /// One id, one image: every random choice comes from the nonce, so that asking again (here, on another
    /// instance, or after the cache dropped it) gives no second picture to average with. If many ask for one
    /// at once, it is drawn once.
    pub async fn of(
        &self,
        body: &VerifiedId,
        text: String,
        turn: impl Future<Output = Result<Slot, ImageError>>,
    ) -> Result<Arc<[u8]>, ImageError> {
        let drawn = async { self.draw(body, text, turn.await?).await };
        self.cache.get_or_insert_async(&body.nonce, drawn).await
    }

    async fn draw(&self, body: &VerifiedId, text: String, turn: Slot) -> Result<Arc<[u8]>, ImageError> {
        let seed = self.seed.of(body.generation).hash(&[&body.nonce]);
        let difficulty = body.difficulty();
        // Moved into the task: a caller that leaves does not free a core that is still drawing.
        let drawn = tokio::task::spawn_blocking(move || {
            let png = draw::png(&text, difficulty, seed);
            drop(turn);
            png
        });
        match drawn.await {
            Ok(Ok(png)) => Ok(png.into()),
            Ok(Err(_)) | Err(_) => Err(ImageError::Failed),
        }
    }
}
