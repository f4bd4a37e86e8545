CREATE TABLE IF NOT EXISTS sales (
  sale        text   NOT NULL,
  epoch       bigint NOT NULL,
  last_serial bigint NOT NULL,
  PRIMARY KEY (sale)
);
CREATE TABLE IF NOT EXISTS sale_entries (
  sale     text   NOT NULL,
  serial   bigint NOT NULL,
  epoch    bigint NOT NULL,
  kind     text   NOT NULL,
  order_id text   NOT NULL,
  user_id  text   NOT NULL,
  item     text   NOT NULL,
  asked    bigint NOT NULL,
  n        bigint NOT NULL,
  ordinal  bigint NOT NULL,
  at       bigint NOT NULL,
  until    bigint NOT NULL,
  why      text   NOT NULL,
  -- index sale_entries_by_order (sale, order_id, serial),
  -- index sale_entries_by_user (sale, user_id, serial),
  PRIMARY KEY (sale, serial)
);
CREATE TABLE IF NOT EXISTS packets (
  packet       text   NOT NULL,
  epoch        bigint NOT NULL,
  last_serial  bigint NOT NULL,
  total        bigint NOT NULL,
  shares       bigint NOT NULL,
  taken        bigint NOT NULL,
  taken_cents  bigint NOT NULL,
  refund_cents bigint,
  PRIMARY KEY (packet)
);
CREATE TABLE IF NOT EXISTS shares (
  packet   text   NOT NULL,
  serial   bigint NOT NULL,
  epoch    bigint NOT NULL,
  kind     text   NOT NULL,
  ordinal  bigint NOT NULL,
  n        bigint NOT NULL,
  user_id  text   NOT NULL,
  cents    bigint NOT NULL,
  at       bigint NOT NULL,
  -- index shares_by_user (packet, user_id),
  PRIMARY KEY (packet, serial)
);
