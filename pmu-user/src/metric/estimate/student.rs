//! Student's t: how many standard errors a 95 % interval reaches when few numbers say how large one is.

/// Quantile that leaves 2.5 % above, at 1 to 10 degrees of freedom and then at those of `SPARSE`.
const DENSE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
const SPARSE: [(f64, f64); 6] =
    [(10.0, 2.228), (15.0, 2.131), (20.0, 2.086), (30.0, 2.042), (60.0, 2.000), (120.0, 1.980)];

/// The quantile for any number of degrees of freedom from 1 up; between those of the table, by their reciprocals.
pub(super) fn quantile(freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    let between = |(from, low): (f64, f64), (to, high): (f64, f64)| {
        low + (high - low) * (1.0 / from - 1.0 / freedom) / (1.0 / from - 1.0 / to)
    };
    if freedom < 10.0 {
        let from = freedom.floor();
        let at = from as usize - 1;
        return between((from, DENSE[at]), (from + 1.0, DENSE[at + 1]));
    }
    match SPARSE.windows(2).find(|pair| freedom < pair[1].0) {
        Some(pair) => between(pair[0], pair[1]),
        None => between(SPARSE[5], (f64::INFINITY, crate::metric::value::Z)),
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn the_quantile_falls_from_that_of_one_degree_to_that_of_the_normal() {
        // Abramowitz and Stegun, table 26.10.
        for (freedom, expected) in [(1.0, 12.706), (7.0, 2.365), (12.0, 2.179), (40.0, 2.021), (1e12, 1.960)]
        {
            assert!((quantile(freedom) - expected).abs() < 0.003, "{freedom}: {}", quantile(freedom));
        }
        assert!((10..400).all(|tenths| {
            let freedom = f64::from(tenths) / 10.0;
            quantile(freedom) > quantile(freedom + 0.1)
        }));
    }
}
