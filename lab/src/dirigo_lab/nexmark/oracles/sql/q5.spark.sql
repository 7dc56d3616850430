-- Per window of 10 s that starts every 2 s, the auctions with the most bids.
WITH counted AS (
    SELECT window.start AS window_start, auction, COUNT(*) AS num
    FROM bid
    GROUP BY window(date_time, '10 seconds', '2 seconds'), auction
),
ranked AS (
    SELECT auction, num, RANK() OVER (PARTITION BY window_start ORDER BY num DESC) AS place
    FROM counted
)
SELECT auction, num
FROM ranked
WHERE place = 1
