//! Square roots of small symmetric matrices: as many rows as there are events that always count.

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

    /// Solves L·x = `side` in place. The square of what remains is side·A⁻¹·side.
    pub(super) fn divide(&self, side: &mut [f64]) {
        for row in 0..self.size {
            let (before, rest) = side.split_at_mut(row);
            let lower = &self.lower[row * self.size..=row * self.size + row];
            let known: f64 = lower.iter().zip(before.iter()).map(|(lower, before)| lower * before).sum();
            rest[0] = (rest[0] - known) / lower[row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cholesky;

    #[test]
    fn the_square_of_a_quotient_is_the_form_of_the_inverse() {
        // The inverse of this matrix takes (1, −2, 3) to x, by A·x = (1, −2, 3).
        let matrix = [4.0, 2.0, 0.6, 2.0, 3.0, -0.4, 0.6, -0.4, 1.5];
        let x: [f64; 3] = [0.5, -1.25, 2.0];
        let side: Vec<f64> =
            matrix.chunks(3).map(|row| row.iter().zip(&x).map(|(a, x)| a * x).sum()).collect();
        let form: f64 = side.iter().zip(&x).map(|(side, x)| side * x).sum();
        let mut quotient = side;
        Cholesky::new(&matrix, 3, 0.0).divide(&mut quotient);
        assert!((quotient.iter().map(|q| q * q).sum::<f64>() - form).abs() < 1e-12, "{quotient:?}, {form}");
    }

    #[test]
    fn columns_that_are_equal_are_divided_with_a_ridge() {
        let mut quotient = [1.0, 1.0];
        Cholesky::new(&[1.0, 1.0, 1.0, 1.0], 2, 1e-6).divide(&mut quotient);
        let square: f64 = quotient.iter().map(|q| q * q).sum();
        assert!((square - 1.0).abs() < 1e-5, "{quotient:?}");
    }
}
