//! Solves small symmetric systems: at most as many unknowns as there are events that always count.

/// The lower triangle L of A = L·Lᵀ, row by row.
pub(super) struct Cholesky {
    size: usize,
    lower: Vec<f64>,
}

impl Cholesky {
    /// Splits `matrix` + `ridge` · 1. The matrix (row by row) must not have negative eigenvalues; with a ridge above
    /// what rounding leaves of them, the square roots exist.
    pub(super) fn new(matrix: &[f64], size: usize, ridge: f64) -> Self {
        let mut lower = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..=row {
                let mut rest = matrix[row * size + column];
                if row == column {
                    rest += ridge;
                }
                for k in 0..column {
                    rest -= lower[row * size + k] * lower[column * size + k];
                }
                lower[row * size + column] =
                    if row == column { rest.max(ridge).sqrt() } else { rest / lower[column * size + column] };
            }
        }
        Self { size, lower }
    }

    /// Solves L·x = `side` in place.
    pub(super) fn forward(&self, side: &mut [f64]) {
        for row in 0..self.size {
            let known: f64 = (0..row).map(|k| self.lower[row * self.size + k] * side[k]).sum();
            side[row] = (side[row] - known) / self.lower[row * self.size + row];
        }
    }

    /// Solves A·x = `side` in place.
    pub(super) fn solve(&self, side: &mut [f64]) {
        self.forward(side);
        for row in (0..self.size).rev() {
            let known: f64 = (row + 1..self.size).map(|k| self.lower[k * self.size + row] * side[k]).sum();
            side[row] = (side[row] - known) / self.lower[row * self.size + row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cholesky;

    #[test]
    fn what_is_solved_gives_back_the_right_side() {
        let matrix = [4.0, 2.0, 0.6, 2.0, 3.0, -0.4, 0.6, -0.4, 1.5];
        let mut solution = [1.0, -2.0, 3.0];
        Cholesky::new(&matrix, 3, 0.0).solve(&mut solution);
        for (row, side) in matrix.chunks(3).zip([1.0, -2.0, 3.0]) {
            let product: f64 = row.iter().zip(&solution).map(|(a, x)| a * x).sum();
            assert!((product - side).abs() < 1e-12, "{product} for {side}");
        }
    }

    #[test]
    fn equal_columns_share_with_a_ridge() {
        let mut solution = [1.0, 1.0];
        Cholesky::new(&[1.0, 1.0, 1.0, 1.0], 2, 1e-6).solve(&mut solution);
        assert!((solution[0] - 0.5).abs() < 1e-6 && (solution[1] - 0.5).abs() < 1e-6, "{solution:?}");
    }
}
