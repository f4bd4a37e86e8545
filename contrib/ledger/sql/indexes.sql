CREATE INDEX IF NOT EXISTS sale_entries_by_order ON sale_entries (sale, order_id, serial);
CREATE INDEX IF NOT EXISTS sale_entries_by_user ON sale_entries (sale, user_id, serial);
CREATE INDEX IF NOT EXISTS shares_by_user ON shares (packet, user_id);
