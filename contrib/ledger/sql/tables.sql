CREATE TABLE IF NOT EXISTS moves (
  stock    text   NOT NULL,
  epoch    bigint NOT NULL,
  serial   bigint NOT NULL,
  kind     text   NOT NULL,
  ordinal  bigint NOT NULL,
  n        bigint NOT NULL,
  claimant text   NOT NULL,
  request  text   NOT NULL,
  at       bigint NOT NULL,
  -- index moves_by_ordinal (stock, epoch, ordinal, kind),
  -- index moves_by_claimant (stock, claimant, epoch, ordinal, kind),
  PRIMARY KEY (stock, epoch, serial)
);
CREATE TABLE IF NOT EXISTS mark (
  stock text   NOT NULL,
  epoch bigint NOT NULL,
  nth   bigint NOT NULL,
  next  bigint NOT NULL,
  PRIMARY KEY (stock, epoch),
  UNIQUE (stock, nth)
);
CREATE TABLE IF NOT EXISTS shares (
  packet   text   NOT NULL,
  epoch    bigint NOT NULL,
  serial   bigint NOT NULL,
  kind     text   NOT NULL,
  ordinal  bigint NOT NULL,
  n        bigint NOT NULL,
  claimant text   NOT NULL,
  cents    bigint NOT NULL,
  at       bigint NOT NULL,
  -- index shares_by_claimant (packet, claimant, epoch),
  PRIMARY KEY (packet, epoch, serial)
);
CREATE TABLE IF NOT EXISTS packets (
  packet       text   NOT NULL,
  epoch        bigint NOT NULL,
  nth          bigint NOT NULL,
  next         bigint NOT NULL,
  total        bigint NOT NULL,
  shares       bigint NOT NULL,
  taken        bigint NOT NULL,
  taken_cents  bigint NOT NULL,
  refund_cents bigint,
  PRIMARY KEY (packet, epoch),
  UNIQUE (packet, nth)
);
