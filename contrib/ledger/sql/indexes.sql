CREATE INDEX IF NOT EXISTS moves_by_ordinal ON moves (stock, epoch, ordinal, kind);
CREATE INDEX IF NOT EXISTS moves_by_claimant ON moves (stock, claimant, epoch, ordinal, kind);
CREATE INDEX IF NOT EXISTS shares_by_claimant ON shares (packet, claimant, epoch);
