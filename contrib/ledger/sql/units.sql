units AS
SELECT stock, epoch, begins AS ordinal, COALESCE(later, past) - begins AS n, claimant, request, serial
FROM (
  SELECT stock, epoch, claimant, CASE WHEN kind = 'return' THEN ordinal + n ELSE ordinal END AS begins, LEAD(ordinal) OVER sale AS later,
    FIRST_VALUE(ordinal + n) OVER sale AS past, FIRST_VALUE(request) OVER sale AS request, FIRST_VALUE(serial) OVER sale AS serial
  FROM (
    SELECT stock, epoch, claimant, serial, kind, ordinal, n, request, MAX(CASE WHEN kind <> 'return' THEN ordinal END) OVER (
      PARTITION BY stock, claimant, epoch ORDER BY ordinal, kind ROWS UNBOUNDED PRECEDING) AS granted
    FROM moves WHERE ordinal > 0 AND kind IN ('grant', 'late', 'return')
  ) m
  WINDOW sale AS (PARTITION BY stock, claimant, epoch, granted ORDER BY ordinal, kind)
) s
WHERE COALESCE(later, past) > begins;
