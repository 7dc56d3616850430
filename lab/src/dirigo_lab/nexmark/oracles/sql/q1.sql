-- Every bid with its price in another currency, in exact decimals.
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time, extra
FROM bid
