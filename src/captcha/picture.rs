//! Images of challenges: drawn off the async threads, a few at a time, and kept a short while.

use std::sync::Arc;
use std::thread::available_parallelism;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use super::draw;
use super::id::{Body, Nonce};
use crate::secret::{MasterKey, SubKey};

/// About 2,000 images; an image that was dropped is drawn again, to the same bytes.
const CACHE_BYTES: u64 = 8 << 20;
const CACHE_IMAGES: usize = 2_000;
/// An image takes about 12 ms in a debug build and a fraction of that in a release: under a second's wait.
const MOST_WAITING: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Expired, or no id of ours: one answer to both, there is nothing to draw.
    #[error("no such challenge")]
    Unknown,
    #[error("too many images are being drawn; try again in a second")]
    Busy,
    #[error("the image could not be drawn")]
    Failed,
}

pub struct Pictures {
    seed: SubKey,
    cache: Cache<Nonce, Arc<[u8]>, Bytes>,
    queue: Arc<Semaphore>,
    drawing: Arc<Semaphore>,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Nonce, Arc<[u8]>> for Bytes {
    fn weight(&self, nonce: &Nonce, png: &Arc<[u8]>) -> u64 {
        (nonce.len() + png.len()) as u64
    }
}

impl Pictures {
    pub fn new(key: &MasterKey) -> Self {
        let at_once = available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Self {
            seed: key.derive("captcha.image"),
            cache: Cache::with_weighter(CACHE_IMAGES, CACHE_BYTES, Bytes),
            queue: Arc::new(Semaphore::new(MOST_WAITING)),
            drawing: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// One id, one image: every random choice in it comes from the nonce, so that asking again (here, on
    /// another instance, or after the cache dropped it) yields no second picture to average with.
    pub async fn of(&self, body: &Body, text: String) -> Result<Arc<[u8]>, ImageError> {
        self.cache.get_or_insert_async(&body.nonce, self.draw(body, text)).await
    }

    async fn draw(&self, body: &Body, text: String) -> Result<Arc<[u8]>, ImageError> {
        let waiting = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| ImageError::Busy)?;
        let turn = Arc::clone(&self.drawing).acquire_owned().await.map_err(|_| ImageError::Failed)?;
        let seed = self.seed.hash(&[&body.nonce]);
        let difficulty = body.difficulty();
        // The permits go along: a caller who leaves does not free a core that is still drawing.
        let drawn = tokio::task::spawn_blocking(move || {
            let png = draw::png(&text, difficulty, seed);
            drop((waiting, turn));
            png
        });
        match drawn.await {
            Ok(Ok(png)) => Ok(png.into()),
            Ok(Err(_)) | Err(_) => Err(ImageError::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captcha::id::Ids;
    use crate::captcha::{Client, Difficulty, Form};
    use crate::clock::Micros;
    use crate::entropy::Entropy;

    #[tokio::test]
    async fn past_the_queue_is_busy_and_a_drawn_image_still_comes() {
        let key = MasterKey::from_bytes([7; 32]);
        let (ids, pictures, entropy) = (Ids::new(&key), Pictures::new(&key), Entropy::seeded(1));
        let body = || {
            let client = Client { address: b"a", cookie: None };
            let id = ids.sign(entropy.bytes(), Micros(0), Form::Login, Difficulty::Easy, &client);
            ids.parse(&id).unwrap()
        };
        let (drawn, fresh) = (body(), body());
        let first = pictures.of(&drawn, "HKT".to_owned()).await.unwrap();
        let _all = pictures.queue.acquire_many(MOST_WAITING as u32).await.unwrap();
        assert_eq!(pictures.of(&fresh, "HKT".to_owned()).await, Err(ImageError::Busy));
        assert!(Arc::ptr_eq(&first, &pictures.of(&drawn, "HKT".to_owned()).await.unwrap()));
    }
}
