//! The letterforms: movements of a pen, in units of a capital's height, from its top left corner.
//!
//! They are not from a font: a font's outlines can be searched for in an image, a line that is bent
//! differently each time hardly.

/// One movement of the pen through these points.
#[derive(Clone, Copy)]
pub enum Stroke {
    Straight(&'static [Point]),
    Bent(&'static [Point]),
}

pub type Point = (f32, f32);

/// One way to write a letter.
pub type LetterForm = &'static [Stroke];

use Stroke::{Bent, Straight};

/// The ways to write a letter, in either case; none if it is not in the alphabet.
#[rustfmt::skip]
pub const fn forms(letter: char) -> &'static [LetterForm] {
    match letter.to_ascii_uppercase() {
        'A' => &[
            &[Straight(&[(0.0, 1.0), (0.36, 0.0), (0.72, 1.0)]), Straight(&[(0.13, 0.64), (0.59, 0.64)])],
            &[Bent(&[(0.04, 0.28), (0.3, 0.13), (0.56, 0.25), (0.6, 0.5), (0.6, 1.0)]),
              Bent(&[(0.6, 0.54), (0.25, 0.56), (0.02, 0.76), (0.15, 0.98), (0.4, 0.97), (0.6, 0.8)])],
        ],
        'C' => &[
            &[Bent(&[(0.64, 0.17), (0.36, 0.0), (0.08, 0.2), (0.0, 0.5), (0.08, 0.8), (0.36, 1.0), (0.64, 0.83)])],
        ],
        'D' => &[
            &[Straight(&[(0.0, 0.0), (0.0, 1.0)]),
              Bent(&[(0.0, 0.0), (0.3, 0.02), (0.58, 0.2), (0.64, 0.5), (0.58, 0.8), (0.3, 0.98), (0.0, 1.0)])],
            &[Straight(&[(0.56, 0.0), (0.56, 1.0)]),
              Bent(&[(0.56, 0.5), (0.32, 0.36), (0.06, 0.48), (0.0, 0.7), (0.08, 0.92), (0.3, 1.0), (0.56, 0.84)])],
        ],
        'E' => &[
            &[Straight(&[(0.58, 0.0), (0.0, 0.0), (0.0, 1.0), (0.58, 1.0)]), Straight(&[(0.0, 0.48), (0.5, 0.48)])],
            &[Straight(&[(0.04, 0.56), (0.62, 0.54)]),
              Bent(&[(0.62, 0.54), (0.54, 0.26), (0.3, 0.14), (0.06, 0.28), (0.0, 0.58), (0.1, 0.88), (0.34, 1.0), (0.6, 0.88)])],
        ],
        'H' => &[
            &[Straight(&[(0.0, 0.0), (0.0, 1.0)]), Straight(&[(0.62, 0.0), (0.62, 1.0)]), Straight(&[(0.0, 0.5), (0.62, 0.5)])],
        ],
        'M' => &[
            &[Straight(&[(0.0, 1.0), (0.06, 0.0), (0.42, 0.72), (0.78, 0.0), (0.84, 1.0)])],
            &[Straight(&[(0.0, 0.15), (0.0, 1.0)]), Bent(&[(0.0, 0.42), (0.2, 0.17), (0.4, 0.24), (0.43, 0.5), (0.43, 1.0)]),
              Bent(&[(0.43, 0.42), (0.63, 0.17), (0.83, 0.24), (0.86, 0.5), (0.86, 1.0)])],
        ],
        'P' => &[
            &[Straight(&[(0.0, 1.0), (0.0, 0.0)]),
              Bent(&[(0.0, 0.0), (0.36, 0.01), (0.55, 0.13), (0.57, 0.29), (0.48, 0.46), (0.3, 0.54), (0.0, 0.55)])],
        ],
        'R' => &[
            &[Straight(&[(0.0, 1.0), (0.0, 0.0)]),
              Bent(&[(0.0, 0.0), (0.36, 0.01), (0.54, 0.12), (0.56, 0.27), (0.48, 0.43), (0.3, 0.5), (0.0, 0.51)]),
              Straight(&[(0.26, 0.52), (0.6, 1.0)])],
        ],
        'T' => &[
            &[Straight(&[(0.0, 0.0), (0.7, 0.0)]), Straight(&[(0.35, 0.0), (0.35, 1.0)])],
        ],
        'W' => &[
            &[Straight(&[(0.0, 0.0), (0.2, 1.0), (0.44, 0.25), (0.68, 1.0), (0.88, 0.0)])],
            &[Bent(&[(0.0, 0.1), (0.02, 0.6), (0.14, 0.96), (0.32, 0.86), (0.42, 0.35)]),
              Bent(&[(0.42, 0.35), (0.46, 0.8), (0.62, 0.98), (0.78, 0.7), (0.84, 0.1)])],
        ],
        'X' => &[
            &[Straight(&[(0.0, 0.0), (0.66, 1.0)]), Straight(&[(0.66, 0.0), (0.0, 1.0)])],
        ],
        _ => &[],
    }
}

impl Stroke {
    /// The movement as short straight pieces; a bent one is a Catmull-Rom spline.
    pub fn path(self) -> Vec<Point> {
        const STEPS: usize = 4;
        let (points, bent) = match self {
            Straight(points) => (points, false),
            Bent(points) => (points, true),
        };
        let mut path = Vec::with_capacity(points.len() * STEPS);
        path.extend(points.first());
        for (next, pair) in points.windows(2).enumerate() {
            let (b, c) = (pair[0], pair[1]);
            let a = if bent { points[next.saturating_sub(1)] } else { b };
            let d = if bent { points[(next + 2).min(points.len() - 1)] } else { c };
            path.extend((1..=STEPS).map(|step| {
                let t = step as f32 / STEPS as f32;
                if bent {
                    (spline([a.0, b.0, c.0, d.0], t), spline([a.1, b.1, c.1, d.1], t))
                } else {
                    (b.0 + (c.0 - b.0) * t, b.1 + (c.1 - b.1) * t)
                }
            }));
        }
        path
    }
}

fn spline([a, b, c, d]: [f32; 4], t: f32) -> f32 {
    let (t2, t3) = (t * t, t * t * t);
    0.5 * (2.0 * b + (c - a) * t + (2.0 * a - 5.0 * b + 4.0 * c - d) * t2 + (3.0 * b - a - 3.0 * c + d) * t3)
}
