package pubsub

var ShardedBy = shardedBy
