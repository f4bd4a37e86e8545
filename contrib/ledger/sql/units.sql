sale_units AS
SELECT sale, user_id, order_id, item, SUM(CASE WHEN kind = 'returned' THEN -n ELSE n END) AS n,
  MAX(CASE WHEN kind <> 'returned' THEN ordinal END) AS ordinal
FROM sale_entries WHERE kind IN ('sold', 'paid', 'late', 'returned')
GROUP BY sale, user_id, order_id, item
HAVING SUM(CASE WHEN kind = 'returned' THEN -n ELSE n END) > 0;
